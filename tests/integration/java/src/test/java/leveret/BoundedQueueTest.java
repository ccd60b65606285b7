package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.GetResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Queues with a limit, and what publishers hear of it; then priorities. */
class BoundedQueueTest extends BrokerTestCase {
    private static final long PATIENCE_MS = PATIENCE_SECONDS * 1000;

    /** Collects the outcome of each publish by its number. */
    private static final class Outcomes implements ConfirmListener {
        private final Channel channel;
        private final long expected;
        private final CountDownLatch left;
        private final Map<Long, Boolean> acked = new ConcurrentHashMap<>();
        private final List<String> twice = new ArrayList<>();

        Outcomes(Channel channel, int expected) {
            this.channel = channel;
            this.expected = expected;
            left = new CountDownLatch(expected);
            channel.addConfirmListener(this);
        }

        @Override
        public void handleAck(long tag, boolean multiple) {
            note(tag, multiple, true);
        }

        @Override
        public void handleNack(long tag, boolean multiple) {
            note(tag, multiple, false);
        }

        private synchronized void note(long tag, boolean multiple, boolean ack) {
            for (long each = multiple ? 1 : tag; each <= tag; each++) {
                if (acked.putIfAbsent(each, ack) == null) {
                    left.countDown();
                } else if (!multiple) {
                    twice.add((ack ? "ack " : "nack ") + each);
                }
            }
        }

        /** Waits for all; in the order of the publishes, whether each was acked. */
        synchronized List<Boolean> inOrder() {
            assertEquals(List.of(), twice);
            return IntStream.rangeClosed(1, (int) expected).mapToObj(each -> acked.get((long) each)).toList();
        }

        List<Boolean> await() throws Exception {
            BrokerTestCase.await(left, "all confirms");
            channel.removeConfirmListener(this);
            return inOrder();
        }
    }

    private String bounded(Map<String, Object> limits) throws IOException {
        return channel.queueDeclare(name("bounded"), false, false, false, limits).getQueue();
    }

    private String rejecting(int length) throws IOException {
        return bounded(Map.of("x-max-length", length, "x-overflow", "reject-publish"));
    }

    private void publishNumbers(String exchange, String routingKey, int count) throws IOException {
        for (int i = 1; i <= count; i++) {
            publish(exchange, routingKey, "m" + i);
        }
    }

    // Limits

    @Test
    void theOldestIsDropped() throws Exception {
        String queue = bounded(Map.of("x-max-length", 10));
        channel.confirmSelect();
        publishNumbers("", queue, 25);
        assertTrue(channel.waitForConfirms(PATIENCE_MS), "a dropped message is not nacked");
        assertEquals(IntStream.rangeClosed(16, 25).mapToObj(i -> "m" + i).toList(), drain(channel, queue));
    }

    @Test
    void unackedMessagesDoNotCount() throws Exception {
        String queue = bounded(Map.of("x-max-length", 2));
        publishNumbers("", queue, 2);
        GetResponse first = channel.basicGet(queue, false);
        channel.basicGet(queue, false);
        publish("", queue, "m3");
        publish("", queue, "m4");
        assertReady(2, queue);
        // Requeued messages are the oldest, and the first to go.
        channel.basicNack(first.getEnvelope().getDeliveryTag() + 1, true, true);
        assertEquals(List.of("m3", "m4"), drain(channel, queue));
    }

    @Test
    void bytesAreLimited() throws Exception {
        String queue = bounded(Map.of("x-max-length-bytes", 1000));
        channel.confirmSelect();
        for (char each = 'a'; each <= 'e'; each++) {
            publish("", queue, String.valueOf(each).repeat(300));
        }
        publish("", queue, "f".repeat(100));
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        List<String> kept = drain(channel, queue).stream().map(text -> text.substring(0, 1) + text.length()).toList();
        assertEquals(List.of("c300", "d300", "e300", "f100"), kept);
    }

    @Test
    void limitsAreChecked() throws Exception {
        String queue = rejecting(3);
        String reply = assertChannelClosed(
                406, () -> channel.queueDeclare(queue, false, false, false, Map.of("x-max-length", 4)));
        assertTrue(reply.startsWith("PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue"), reply);
        Channel other = connection.createChannel();
        String text = assertChannelClosed(
                406, () -> other.queueDeclare(name("q"), false, false, false, Map.of("x-max-length", -1)));
        assertTrue(text.startsWith("PRECONDITION_FAILED - invalid arg 'x-max-length'"), text);
    }

    // Rejected publishes

    @Test
    void listenerSeesNacks() throws Exception {
        String queue = rejecting(5);
        channel.confirmSelect();
        Outcomes outcomes = new Outcomes(channel, 8);
        publishNumbers("", queue, 8);
        assertEquals(List.of(true, true, true, true, true, false, false, false), outcomes.await());
        assertEquals(List.of("m1", "m2", "m3", "m4", "m5"), drain(channel, queue));
    }

    @Test
    void waitForConfirmsIsFalseOnce() throws Exception {
        String queue = rejecting(1);
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
    void oneQueueRefusesAndTheOtherKeeps() throws Exception {
        String exchange = name("fanout");
        String full = rejecting(1);
        String open = queue();
        channel.exchangeDeclare(exchange, "fanout");
        channel.queueBind(full, exchange, "");
        channel.queueBind(open, exchange, "");
        channel.confirmSelect();
        Outcomes outcomes = new Outcomes(channel, 3);
        publishNumbers(exchange, "", 3);
        assertEquals(List.of(true, false, false), outcomes.await());
        assertEquals(List.of("m1"), drain(channel, full));
        assertEquals(List.of("m1", "m2", "m3"), drain(channel, open));
    }

    /** The commit fails as a whole for the client, but what other queues took they keep. */
    @Test
    void transactionWithARejectedPublishFails() throws Exception {
        String full = rejecting(1);
        String open = queue();
        channel.txSelect();
        publishNumbers("", full, 2);
        publish("", open, "taken");
        String reply = assertChannelClosed(406, () -> channel.txCommit());
        assertEquals("PRECONDITION_FAILED - partial tx completion", reply);
        Channel other = connection.createChannel();
        assertEquals(List.of("m1"), drain(other, full));
        assertEquals(List.of("taken"), drain(other, open));
    }

    @Test
    void withoutConfirmsARejectedPublishIsSilent() throws Exception {
        String queue = rejecting(2);
        publishNumbers("", queue, 5);
        assertEquals(List.of("m1", "m2"), drain(channel, queue));
    }

    // Priorities

    @Test
    void higherPrioritiesComeFirst() throws Exception {
        String queue = bounded(Map.of("x-max-priority", 5));
        int[] priorities = {1, 5, 0, 3, 5, 1, 9};
        for (int i = 0; i < priorities.length; i++) {
            publishWithPriority(queue, priorities[i], "p" + priorities[i] + "#" + i);
        }
        publish("", queue, "none");
        // A priority above the greatest counts as the greatest, none as 0.
        assertEquals(
                List.of("p5#1", "p5#4", "p9#6", "p3#3", "p1#0", "p1#5", "p0#2", "none"), drain(channel, queue));
    }

    /** The head of the queue is what would be delivered next. */
    @Test
    void aFullPriorityQueueDropsTheHighest() throws Exception {
        String queue = bounded(Map.of("x-max-priority", 3, "x-max-length", 2));
        publishWithPriority(queue, 3, "high");
        publishWithPriority(queue, 1, "low");
        publishWithPriority(queue, 2, "middle");
        assertEquals(List.of("middle", "low"), drain(channel, queue));
    }

    private void publishWithPriority(String queue, int priority, String text) throws IOException {
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().priority(priority).build();
        channel.basicPublish("", queue, properties, bytes(text));
    }
}
