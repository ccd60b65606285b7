package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Deliveries, acknowledgements, cancelled consumers, and calls with their replies. */
class ConsumeTest extends BrokerTestCase {
    private static final int CHANNELS = 20;
    private static final int MESSAGES = 200;

    private static final class UpperCaseServer extends RpcServer {
        UpperCaseServer(Channel channel, String queue) throws Exception {
            super(channel, queue);
        }

        @Override
        public byte[] handleCall(Delivery request, AMQP.BasicProperties replyProperties) {
            return bytes(text(request.getBody()).toUpperCase());
        }
    }

    @Test
    void acknowledgementsMakeRoom() throws Exception {
        String queue = queue();
        for (int i = 1; i <= 7; i++) {
            publish("", queue, "m" + i);
        }
        Deliveries deliveries = new Deliveries(channel);
        channel.basicQos(3);
        channel.basicConsume(queue, false, deliveries);
        assertEquals(List.of("m1", "m2", "m3"), deliveries.takeTexts(3));
        channel.basicNack(3, false, true);
        Delivery again = deliveries.take();
        assertEquals("m3", text(again.getBody()));
        assertTrue(again.getEnvelope().isRedeliver());
        assertEquals(4, again.getEnvelope().getDeliveryTag());
        channel.basicAck(2, true);
        assertEquals(List.of("m4", "m5"), deliveries.takeTexts(2));
        deliveries.assertNoMore();
        // What a cancelled consumer holds is still the channel's to settle.
        channel.basicReject(4, false);
        channel.basicAck(0, true);
        GetResponse got = channel.basicGet(queue, true);
        assertEquals("m6", text(got.getBody()));
        assertFalse(got.getEnvelope().isRedeliver());
        assertEquals(1, got.getMessageCount());
    }

    @Test
    @Tag("quick")
    void deletedQueueCancelsItsConsumers() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries same = new Deliveries(channel);
        Deliveries other = new Deliveries(open(factory()).createChannel());
        channel.basicConsume(queue, true, "tag", same);
        other.getChannel().basicConsume(queue, true, "tag", other);
        channel.queueDelete(queue);
        await(same.cancelled, "basic.cancel on the deleting channel");
        await(other.cancelled, "basic.cancel on another connection");
        // Channels and tags can be used on.
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries second = new Deliveries(other.getChannel());
        other.getChannel().basicConsume(queue, true, "tag", second);
        publish("", queue, "m");
        assertEquals(List.of("m"), second.takeTexts(1));
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
    void callsWithDirectReplyTo() throws Exception {
        String queue = name("rpc");
        Channel serving = open(factory()).createChannel();
        serving.queueDeclare(queue, false, false, false, null);
        UpperCaseServer server = new UpperCaseServer(serving, queue);
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        thread.start();
        RpcClientParams params = new RpcClientParams()
                .channel(channel)
                .exchange("")
                .routingKey(queue)
                .replyTo("amq.rabbitmq.reply-to")
                .timeout((int) PATIENCE_SECONDS * 1000);
        RpcClient client = new RpcClient(params);
        for (int i = 0; i < 50; i++) {
            assertEquals("CALL " + i, client.stringCall("call " + i));
        }
        client.close();
        // Its main loop ends when it gets no more requests.
        serving.close();
        thread.join(PATIENCE_SECONDS * 1000);
    }
}
