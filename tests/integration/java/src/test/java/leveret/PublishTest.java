package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Return;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Confirms, returns, and bodies of many frames. */
class PublishTest extends BrokerTestCase {
    private static final long PATIENCE_MS = PATIENCE_SECONDS * 1000;

    private static byte[] noise(int length) {
        byte[] body = new byte[length];
        new Random(length).nextBytes(body);
        return body;
    }

    /** Each number is confirmed exactly once, singly or by a multiple that covers it. */
    @Test
    @Tag("quick")
    void listenerSeesEveryNumberOnce() throws Exception {
        int count = 2000;
        String queue = name("queue");
        channel.queueDeclare(queue, true, false, false, null);
        ConcurrentNavigableMap<Long, String> outstanding = new ConcurrentSkipListMap<>();
        CountDownLatch allConfirmed = new CountDownLatch(count);
        List<String> wrong = Collections.synchronizedList(new ArrayList<>());
        channel.confirmSelect();
        channel.addConfirmListener(
                (tag, multiple) -> {
                    ConcurrentNavigableMap<Long, String> covered =
                            multiple ? outstanding.headMap(tag, true) : outstanding.subMap(tag, true, tag, true);
                    if (covered.isEmpty()) {
                        wrong.add("ack " + tag + " confirms nothing");
                    }
                    int confirmed = covered.size();
                    covered.clear();
                    for (int i = 0; i < confirmed; i++) {
                        allConfirmed.countDown();
                    }
                },
                (tag, multiple) -> wrong.add("nack " + tag));
        for (int i = 0; i < count; i++) {
            outstanding.put(channel.getNextPublishSeqNo(), "m" + i);
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("m" + i));
        }
        await(allConfirmed, "all confirms");
        assertEquals(List.of(), wrong);
        assertTrue(outstanding.isEmpty());
        assertReady(count, channel, queue);
    }

    @Test
    void waitForConfirmsIsFalseAfterANack() throws Exception {
        String queue = name("bounded");
        channel.queueDeclare(
                queue, false, false, false, Map.of("x-max-length", 1, "x-overflow", "reject-publish"));
        channel.confirmSelect();
        publish("", queue, "kept");
        assertTrue(channel.waitForConfirms(PATIENCE_MS));
        publish("", queue, "refused");
        assertFalse(channel.waitForConfirms(PATIENCE_MS));
        assertEquals(List.of("kept"), drain(channel, queue));
        publish("", queue, "room again");
        assertTrue(channel.waitForConfirms(PATIENCE_MS));
        assertEquals(List.of("room again"), drain(channel, queue));
    }

    @Test
    @Tag("quick")
    void returnsComeWholeAndBeforeTheirConfirms() throws Exception {
        List<Return> returned = Collections.synchronizedList(new ArrayList<>());
        channel.addReturnListener(returned::add);
        channel.confirmSelect();
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                .messageId("42")
                .contentType("text/plain")
                .headers(Map.of("answer", 42))
                .build();
        byte[] body = noise(500_000);
        channel.basicPublish("amq.direct", "nobody listens", true, properties, body);
        channel.basicPublish("", name("nowhere"), false, null, bytes("optional"));
        assertTrue(channel.waitForConfirms(PATIENCE_MS));
        // Both are handled by the connection's own thread, the return first.
        assertEquals(1, returned.size());
        Return message = returned.get(0);
        assertEquals(312, message.getReplyCode());
        assertEquals("NO_ROUTE", message.getReplyText());
        assertEquals("amq.direct", message.getExchange());
        assertEquals("nobody listens", message.getRoutingKey());
        assertEquals(properties, message.getProperties());
        assertArrayEquals(body, message.getBody());
    }

    /** Around the largest body frame of the agreed 131072, whose payload is 8 bytes less, and many of them. */
    @Test
    @Tag("quick")
    void bodiesComeBackWhole() throws Exception {
        int[] lengths = {5 * 1024 * 1024, 0, 1, 131_063, 131_064, 131_065, 262_128, 262_129, 5 * 1024 * 1024};
        String queue = queue();
        Deliveries deliveries = new Deliveries(channel);
        channel.basicConsume(queue, true, deliveries);
        channel.confirmSelect();
        for (int length : lengths) {
            channel.basicPublish("", queue, null, noise(length));
        }
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        for (int length : lengths) {
            assertArrayEquals(noise(length), deliveries.take().getBody(), () -> length + " bytes");
        }
    }
}
