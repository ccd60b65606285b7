package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.MessageProperties;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class PublishConfirmTest extends BrokerTestCase {
    private static final long PATIENCE_MS = PATIENCE_SECONDS * 1000;

    @Test
    void waitForConfirms() throws Exception {
        String queue = queue();
        channel.confirmSelect();
        assertEquals(1, channel.getNextPublishSeqNo());
        for (int i = 0; i < 500; i++) {
            publish("", queue, "m" + i);
        }
        assertEquals(501, channel.getNextPublishSeqNo());
        assertTrue(channel.waitForConfirms(PATIENCE_MS));
        assertReady(500, queue);
    }

    @Test
    void oneByOne() throws Exception {
        String queue = queue();
        channel.confirmSelect();
        for (int i = 0; i < 50; i++) {
            publish("", queue, "m" + i);
            channel.waitForConfirmsOrDie(PATIENCE_MS);
        }
        assertReady(50, queue);
    }

    @Test
    void persistentMessagesInADurableQueue() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, true, false, false, null);
        channel.confirmSelect();
        for (int i = 0; i < 100; i++) {
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("m" + i));
        }
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        assertReady(100, queue);
    }

    @Test
    void unroutableIsConfirmedToo() throws Exception {
        channel.confirmSelect();
        publish("", name("nowhere"), "lost");
        assertTrue(channel.waitForConfirms(PATIENCE_MS));
    }

    /** Each number is confirmed exactly once, singly or by a multiple that covers it. */
    @Test
    void listenerSeesEveryNumberOnce() throws Exception {
        int count = 2000;
        String queue = queue();
        ConcurrentNavigableMap<Long, String> outstanding = new ConcurrentSkipListMap<>();
        CountDownLatch allConfirmed = new CountDownLatch(count);
        List<String> wrong = new ArrayList<>();
        channel.confirmSelect();
        channel.addConfirmListener(new ConfirmListener() {
            @Override
            public void handleAck(long tag, boolean multiple) {
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
            }

            @Override
            public void handleNack(long tag, boolean multiple) {
                wrong.add("nack " + tag);
            }
        });
        for (int i = 0; i < count; i++) {
            outstanding.put(channel.getNextPublishSeqNo(), "m" + i);
            publish("", queue, "m" + i);
        }
        await(allConfirmed, "all confirms");
        assertEquals(List.of(), wrong);
        assertTrue(outstanding.isEmpty());
        assertReady(count, queue);
    }

    @Test
    void sequencesOfChannelsAreApart() throws Exception {
        String queue = queue();
        Channel other = connection.createChannel();
        AtomicInteger strays = new AtomicInteger();
        channel.confirmSelect();
        other.confirmSelect();
        other.addConfirmListener((tag, multiple) -> strays.incrementAndGet(), (tag, multiple) -> strays.incrementAndGet());
        publish("", queue, "m");
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        other.basicQos(0);
        assertEquals(1, other.getNextPublishSeqNo());
        assertEquals(0, strays.get());
    }

    @Test
    void confirmsDoNotMixWithTransactions() throws Exception {
        channel.confirmSelect();
        channel.confirmSelect();
        String reply = assertChannelClosed(406, () -> channel.txSelect());
        assertEquals("PRECONDITION_FAILED - cannot switch from confirm to tx mode", reply);
    }
}
