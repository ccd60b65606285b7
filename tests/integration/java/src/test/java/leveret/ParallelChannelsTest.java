package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ParallelChannelsTest extends BrokerTestCase {
    private static final int CHANNELS = 20;
    private static final int MESSAGES = 200;

    /** Publishes and consumes on a channel of its own; returns what came, in order. */
    private List<String> publishAndConsume(String prefix) throws Exception {
        try (Channel own = connection.createChannel()) {
            String queue = own.queueDeclare().getQueue();
            Deliveries deliveries = new Deliveries(own);
            own.basicQos(10);
            own.confirmSelect();
            own.basicConsume(queue, false, deliveries);
            for (int i = 0; i < MESSAGES; i++) {
                own.basicPublish("", queue, null, bytes(prefix + i));
            }
            List<String> texts = new ArrayList<>();
            for (int i = 0; i < MESSAGES; i++) {
                var delivery = deliveries.take();
                texts.add(text(delivery.getBody()));
                own.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }
            own.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
            assertEquals(0, own.queueDelete(queue).getMessageCount());
            return texts;
        }
    }

    @Test
    void channelsOfOneConnectionDoNotDisturbEachOther() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CHANNELS);
        try {
            List<Callable<List<String>>> jobs = new ArrayList<>();
            for (int i = 0; i < CHANNELS; i++) {
                String prefix = "c" + i + "-";
                jobs.add(() -> publishAndConsume(prefix));
            }
            List<Future<List<String>>> results = threads.invokeAll(jobs, 5 * PATIENCE_SECONDS, TimeUnit.SECONDS);
            for (int i = 0; i < CHANNELS; i++) {
                List<String> expected = new ArrayList<>();
                for (int j = 0; j < MESSAGES; j++) {
                    expected.add("c" + i + "-" + j);
                }
                assertEquals(expected, results.get(i).get());
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void errorOnOneChannelLeavesTheOthers() throws Exception {
        Channel other = connection.createChannel();
        assertChannelClosed(404, () -> channel.queueDeclarePassive(name("queue")));
        assertThrows(AlreadyClosedException.class, () -> channel.basicQos(1));
        other.queueDeclare();
        Channel again = connection.createChannel(channel.getChannelNumber());
        again.queueDeclare();
    }

    @Test
    void agreedNumberOfChannels() throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedChannelMax(3);
        Connection small = open(factory);
        assertEquals(3, small.getChannelMax());
        for (int i = 0; i < 3; i++) {
            small.createChannel().basicQos(1);
        }
        assertNull(small.createChannel());
    }
}
