package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Delivery;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Messages that leave a queue unconsumed and go to a dead-letter exchange, as the client decodes them. */
class DeadLetterTest extends BrokerTestCase {
    private static final long CLOCK_TOLERANCE_MS = 60_000;

    /** A queue that collects the dead letters, by way of the exchange. */
    private String letters;

    private String exchange;
    private Deliveries received;

    @BeforeEach
    void consumeLetters() throws Exception {
        exchange = name("dlx");
        letters = queue();
        channel.exchangeDeclare(exchange, "fanout");
        channel.queueBind(letters, exchange, "");
        received = new Deliveries(channel);
        channel.basicConsume(letters, true, received);
    }

    /** A durable queue whose dead letters go to the exchange. */
    private String dying(Map<String, Object> arguments) throws IOException {
        Map<String, Object> all = new HashMap<>(arguments);
        all.put("x-dead-letter-exchange", exchange);
        return channel.queueDeclare(name("dying"), true, false, false, all).getQueue();
    }

    private void rejectNext(String queue) throws IOException {
        channel.basicReject(channel.basicGet(queue, false).getEnvelope().getDeliveryTag(), false);
    }

    /** The entries of header x-death, the most recent death first. */
    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> deaths(Delivery letter) {
        return (List<Map<String, Object>>) letter.getProperties().getHeaders().get("x-death");
    }

    private static Map<String, Object> onlyDeath(Delivery letter) {
        List<Map<String, Object>> deaths = deaths(letter);
        assertEquals(1, deaths.size(), deaths::toString);
        return deaths.get(0);
    }

    /** Strings of headers come as LongString. */
    private static String header(Delivery letter, String name) {
        return letter.getProperties().getHeaders().get(name).toString();
    }

    /** Takes the next dead letter and asserts what it died of, and where. */
    private Delivery assertLetter(String text, String reason, String queue) throws InterruptedException {
        Delivery letter = received.take();
        assertEquals(text, text(letter.getBody()));
        assertEquals(exchange, letter.getEnvelope().getExchange());
        assertEquals(reason, onlyDeath(letter).get("reason").toString());
        assertEquals(queue, onlyDeath(letter).get("queue").toString());
        return letter;
    }

    private static AMQP.BasicProperties expiration(String milliseconds) {
        return new AMQP.BasicProperties.Builder().expiration(milliseconds).build();
    }

    @Test
    void headersOfADeath() throws Exception {
        String queue = dying(Map.of());
        channel.basicPublish("", queue, expiration("600000"), bytes("m"));
        rejectNext(queue);
        Delivery letter = assertLetter("m", "rejected", queue);

        Map<String, Object> death = onlyDeath(letter);
        assertEquals(
                Set.of("count", "reason", "queue", "time", "exchange", "routing-keys", "original-expiration"),
                death.keySet());
        assertEquals(1L, assertInstanceOf(Long.class, death.get("count")));
        Date time = assertInstanceOf(Date.class, death.get("time"));
        assertTrue(Math.abs(time.getTime() - System.currentTimeMillis()) < CLOCK_TOLERANCE_MS, time::toString);
        assertEquals("", death.get("exchange").toString());
        List<?> keys = assertInstanceOf(List.class, death.get("routing-keys"));
        assertEquals(List.of(queue), keys.stream().map(Object::toString).toList());
        assertEquals("600000", death.get("original-expiration").toString());

        // Or it would expire again where it goes.
        assertNull(letter.getProperties().getExpiration());
        assertEquals("", header(letter, "x-first-death-exchange"));
        assertEquals(queue, header(letter, "x-first-death-queue"));
        assertEquals("rejected", header(letter, "x-first-death-reason"));
        assertEquals(queue, letter.getEnvelope().getRoutingKey());
    }

    @Test
    void aLongerHistory() throws Exception {
        String second = dying(Map.of());
        String first = channel.queueDeclare(
                        name("first"),
                        false,
                        false,
                        false,
                        Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", second, "x-max-length", 0))
                .getQueue();
        publish("", first, "m");
        // A dead letter is on its way for a moment.
        assertReady(1, second);
        rejectNext(second);
        Delivery letter = received.take();
        List<String> history = deaths(letter).stream()
                .map(death -> death.get("reason") + " in " + death.get("queue"))
                .toList();
        assertEquals(List.of("rejected in " + second, "maxlen in " + first), history);
        assertEquals("maxlen", header(letter, "x-first-death-reason"));
    }

    @Test
    void headersOfThePublisherStay() throws Exception {
        String queue = dying(Map.of());
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                .headers(Map.of("answer", 42))
                .contentType("text/plain")
                .correlationId("c1")
                .priority(3)
                .build();
        channel.basicPublish("", queue, properties, bytes("m"));
        rejectNext(queue);
        AMQP.BasicProperties died = assertLetter("m", "rejected", queue).getProperties();
        assertEquals(42, died.getHeaders().get("answer"));
        assertEquals("text/plain", died.getContentType());
        assertEquals("c1", died.getCorrelationId());
        assertEquals(3, died.getPriority());
    }

    @Test
    void nackOfManyAtOnce() throws Exception {
        String queue = dying(Map.of());
        for (String each : List.of("a", "b", "c")) {
            publish("", queue, each);
        }
        long last = 0;
        for (int i = 0; i < 3; i++) {
            last = channel.basicGet(queue, false).getEnvelope().getDeliveryTag();
        }
        channel.basicNack(last, true, false);
        for (String each : List.of("a", "b", "c")) {
            assertLetter(each, "rejected", queue);
        }
    }

    @Test
    void overflow() throws Exception {
        String queue = dying(Map.of("x-max-length", 2));
        for (String each : List.of("a", "b", "c", "d")) {
            publish("", queue, each);
        }
        assertLetter("a", "maxlen", queue);
        assertLetter("b", "maxlen", queue);
        assertEquals(List.of("c", "d"), drain(channel, queue));
    }

    @Test
    void rejectedPublishes() throws Exception {
        String queue = dying(Map.of("x-max-length", 1, "x-overflow", "reject-publish-dlx"));
        publish("", queue, "a");
        publish("", queue, "b");
        assertLetter("b", "maxlen", queue);
        assertEquals(List.of("a"), drain(channel, queue));
    }

    @Test
    void queueTimeToLive() throws Exception {
        String queue = dying(Map.of("x-message-ttl", 30));
        publish("", queue, "a");
        publish("", queue, "b");
        assertLetter("a", "expired", queue);
        assertLetter("b", "expired", queue);
        assertReady(0, queue);
    }

    /** A message expires at the head of its queue only: one without expiration holds up those behind it. */
    @Test
    void messageExpiration() throws Exception {
        String queue = dying(Map.of());
        channel.basicPublish("", queue, expiration("30"), bytes("short"));
        channel.basicPublish("", queue, expiration("60000"), bytes("long"));
        channel.basicPublish("", queue, expiration("1"), bytes("behind"));
        Delivery letter = assertLetter("short", "expired", queue);
        assertEquals("30", onlyDeath(letter).get("original-expiration").toString());
        assertNull(letter.getProperties().getExpiration());
        assertReady(2, queue);
        assertEquals("long", text(channel.basicGet(queue, true).getBody()));
        assertLetter("behind", "expired", queue);
    }

    @Test
    void expirationMustBeANumber() throws Exception {
        String queue = queue();
        channel.basicPublish("", queue, expiration("soon"), bytes("m"));
        String reply = assertChannelClosed(406, () -> drain(channel, queue));
        assertTrue(reply.startsWith("PRECONDITION_FAILED - invalid expiration 'soon'"), reply);
    }

    @Test
    void withoutAnExchangeTheyAreGone() throws Exception {
        String queue = channel.queueDeclare(name("mortal"), false, false, false, Map.of("x-message-ttl", 1)).getQueue();
        channel.confirmSelect();
        publish("", queue, "m");
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        assertReady(0, queue);
        received.assertNoMore();
    }

    // Quorum queues

    @Test
    void deliveryLimitOfAQuorumQueue() throws Exception {
        String queue = dying(Map.of("x-queue-type", "quorum", "x-delivery-limit", 2));
        publish("", queue, "poison");
        Deliveries consumer = new Deliveries(channel);
        channel.basicConsume(queue, false, consumer);
        List<Object> counts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Delivery delivery = consumer.take();
            Map<String, Object> headers = delivery.getProperties().getHeaders();
            counts.add(headers == null ? "none" : headers.getOrDefault("x-delivery-count", "none"));
            assertEquals(i > 0, delivery.getEnvelope().isRedeliver());
            channel.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
        }
        assertEquals(List.of("none", 1L, 2L), counts);
        Delivery letter = assertLetter("poison", "delivery_limit", queue);
        assertEquals("delivery_limit", header(letter, "x-first-death-reason"));
        consumer.assertNoMore();
    }

    @Test
    void aBoundedQuorumQueue() throws Exception {
        String queue = dying(Map.of("x-queue-type", "quorum", "x-max-length", 2));
        channel.confirmSelect();
        for (String each : List.of("a", "b", "c")) {
            publish("", queue, each);
        }
        assertTrue(channel.waitForConfirms(PATIENCE_SECONDS * 1000));
        assertLetter("a", "maxlen", queue);
        assertEquals(List.of("b", "c"), drain(channel, queue));
    }
}
