package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.LongString;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Properties, headers and arguments with the types that Java gives them. */
class ValuesTest extends BrokerTestCase {
    private static final Date MOMENT = new Date(1_700_000_000_000L);

    private AMQP.BasicProperties roundTrip(AMQP.BasicProperties properties) throws Exception {
        String queue = queue();
        channel.basicPublish("", queue, properties, bytes("m"));
        return channel.basicGet(queue, true).getProps();
    }

    /** Long strings arrive as LongString; all else has equals(). */
    private static Object plain(Object value) {
        if (value instanceof LongString) {
            return value.toString();
        }
        if (value instanceof List<?> list) {
            return list.stream().map(ValuesTest::plain).toList();
        }
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> copy = new HashMap<>();
            map.forEach((key, each) -> copy.put(key, plain(each)));
            return copy;
        }
        return value;
    }

    @Test
    void headersKeepTheirTypes() throws Exception {
        Map<String, Object> headers = new HashMap<>();
        headers.put("bool", false);
        headers.put("byte", (byte) -128);
        headers.put("short", (short) -32768);
        headers.put("int", Integer.MIN_VALUE);
        headers.put("long", Long.MIN_VALUE);
        headers.put("long small", 1L);
        headers.put("float", 1.5f);
        headers.put("double", Math.PI);
        headers.put("decimal", new BigDecimal("123.45"));
        headers.put("string", "grün ☂ \uD83D\uDC30");
        headers.put("empty string", "");
        headers.put("timestamp", MOMENT);
        headers.put("table", Map.of("a", 1, "b", Map.of("c", "d"), "e", Map.of()));
        headers.put("array", List.of(1, "two", 3.0, List.of(true), Map.of("x", 1L), List.of()));
        headers.put("void", null);
        headers.put("array with void", Arrays.asList(1, null, 2));
        for (int i = 0; i < 1000; i++) {
            headers.put("header-" + i, i);
        }
        byte[] bytes = {0, -1, 127, -128};
        headers.put("bytes", bytes);
        Map<String, Object> received =
                roundTrip(new AMQP.BasicProperties.Builder().headers(headers).build())
                        .getHeaders();
        assertArrayEquals(bytes, assertInstanceOf(byte[].class, received.remove("bytes")));
        headers.remove("bytes");
        assertEquals(headers, plain(received));
    }

    @Test
    void properties() throws Exception {
        AMQP.BasicProperties sent = new AMQP.BasicProperties.Builder()
                .contentType("application/json")
                .contentEncoding("gzip")
                .headers(Map.of("a", 1))
                .deliveryMode(2)
                .priority(9)
                .correlationId("correlation")
                .replyTo("reply")
                .expiration("60000")
                .messageId("message")
                .timestamp(MOMENT)
                .type("type")
                .userId("guest")
                .appId("app")
                .clusterId("cluster")
                .build();
        assertEquals(sent, roundTrip(sent));
        AMQP.BasicProperties none = new AMQP.BasicProperties();
        assertEquals(none, roundTrip(none));
    }

    /** Java sends an integer in as many bytes as its type has; to the broker it is the same number. */
    @Test
    void argumentsOfAnyWidth() throws Exception {
        String queue = name("bounded");
        for (Object ten : new Object[] {(byte) 10, (short) 10, 10, 10L}) {
            channel.queueDeclare(queue, false, false, false, Map.of("x-max-length", ten));
        }
        String exchange = name("headers");
        channel.exchangeDeclare(exchange, "headers");
        channel.queueBind(queue, exchange, "", Map.of("size", (byte) 5));
        for (Object size : new Object[] {(short) 5, 5, 5L, "5"}) {
            var properties = new AMQP.BasicProperties.Builder().headers(Map.of("size", size));
            channel.basicPublish(exchange, "", properties.build(), bytes(size.getClass().getSimpleName()));
        }
        assertEquals(List.of("Short", "Integer", "Long"), drain(channel, queue));
        String reply = assertChannelClosed(
                406, () -> channel.queueDeclare(queue, false, false, false, Map.of("x-max-length", (byte) 11)));
        assertEquals(
                "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '" + queue
                        + "' in vhost '/': received '11' but current is '10'",
                reply);
    }

    @Test
    @SuppressWarnings("unchecked")
    void headersOfADeath() throws Exception {
        String letters = queue();
        String queue = name("dying");
        Map<String, Object> arguments = Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", letters);
        channel.queueDeclare(queue, false, false, false, arguments);
        Deliveries received = new Deliveries(channel);
        channel.basicConsume(letters, true, received);
        AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().expiration("600000").build();
        channel.basicPublish("", queue, properties, bytes("m"));
        channel.basicReject(channel.basicGet(queue, false).getEnvelope().getDeliveryTag(), false);

        AMQP.BasicProperties letter = received.take().getProperties();
        assertNull(letter.getExpiration());
        assertEquals("rejected", letter.getHeaders().get("x-first-death-reason").toString());
        var deaths = (List<Map<String, Object>>) letter.getHeaders().get("x-death");
        assertEquals(1, deaths.size());
        Map<String, Object> death = deaths.get(0);
        assertEquals(
                Set.of("count", "reason", "queue", "time", "exchange", "routing-keys", "original-expiration"),
                death.keySet());
        assertEquals(1L, assertInstanceOf(Long.class, death.get("count")));
        assertInstanceOf(Date.class, death.get("time"));
        assertEquals(List.of(queue), plain(death.get("routing-keys")));
        assertEquals("600000", death.get("original-expiration").toString());
    }
}
