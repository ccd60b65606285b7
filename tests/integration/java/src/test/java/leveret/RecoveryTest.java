package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.recovery.AutorecoveringConnection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The client builds up its topology again when the broker is back. */
@Tag("restart")
class RecoveryTest extends BrokerTestCase {
    private Connection recovering() throws Exception {
        ConnectionFactory factory = factory();
        factory.setAutomaticRecoveryEnabled(true);
        factory.setTopologyRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(100);
        return open(factory);
    }

    /** Restarts the broker; returns when all these connections have recovered. */
    private void restart(Connection... connections) throws Exception {
        CountDownLatch recovered = new CountDownLatch(connections.length);
        for (Connection each : connections) {
            ((Recoverable) each).addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable recoverable) {
                    recovered.countDown();
                }

                @Override
                public void handleRecoveryStarted(Recoverable recoverable) {}
            });
        }
        BrokerControl.restart();
        await(recovered, "recovery");
    }

    @Test
    void topologyComesBack() throws Exception {
        Connection recovering = recovering();
        Channel own = recovering.createChannel();
        String source = name("source");
        String target = name("target");
        String queue = name("queue");
        own.exchangeDeclare(source, BuiltinExchangeType.TOPIC, true);
        own.exchangeDeclare(target, BuiltinExchangeType.FANOUT, false);
        own.queueDeclare(queue, true, false, false, null);
        own.exchangeBind(target, source, "logs.#");
        own.queueBind(queue, target, "");
        Deliveries deliveries = new Deliveries(own);
        own.basicQos(1);
        own.confirmSelect();
        own.basicConsume(queue, false, "consumer", deliveries);
        restart(recovering);

        assertEquals(1, own.consumerCount(queue));
        for (int i = 1; i <= 3; i++) {
            own.basicPublish(source, "logs.kernel", null, bytes("m" + i));
        }
        own.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        // The prefetch limit is back too.
        assertReady(2, own, queue);
        for (int i = 1; i <= 3; i++) {
            var delivery = deliveries.take();
            assertEquals("m" + i, text(delivery.getBody()));
            own.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }
        deliveries.assertNoMore();
    }

    @Test
    void serverNamedQueueComesBackUnderANewName() throws Exception {
        Connection recovering = recovering();
        Channel own = recovering.createChannel();
        String exchange = name("exchange");
        own.exchangeDeclare(exchange, BuiltinExchangeType.DIRECT);
        String queue = own.queueDeclare().getQueue();
        own.queueBind(queue, exchange, "key");
        Deliveries deliveries = new Deliveries(own);
        own.basicConsume(queue, true, deliveries);
        CompletableFuture<String> renamed = new CompletableFuture<>();
        ((AutorecoveringConnection) recovering).addQueueRecoveryListener((before, after) -> renamed.complete(after));
        restart(recovering);

        assertNotEquals(queue, renamed.get(PATIENCE_SECONDS, TimeUnit.SECONDS));
        own.basicPublish(exchange, "key", null, bytes("m"));
        assertEquals(List.of("m"), deliveries.takeTexts(1));
    }

    @Test
    void manyConnectionsComeBack() throws Exception {
        Connection[] connections = new Connection[10];
        List<Deliveries> consumers = new ArrayList<>();
        List<String> queues = new ArrayList<>();
        for (int i = 0; i < connections.length; i++) {
            connections[i] = recovering();
            Channel own = connections[i].createChannel();
            String queue = name("queue");
            Deliveries deliveries = new Deliveries(own);
            own.queueDeclare(queue, false, false, true, null);
            own.basicConsume(queue, true, deliveries);
            queues.add(queue);
            consumers.add(deliveries);
        }
        restart(connections);
        for (int i = 0; i < connections.length; i++) {
            Deliveries deliveries = consumers.get(i);
            deliveries.getChannel().basicPublish("", queues.get(i), null, bytes("m" + i));
            assertEquals(List.of("m" + i), deliveries.takeTexts(1));
        }
    }

    @Test
    void stoppingBrokerSaysGoodbye() throws Exception {
        CompletableFuture<ShutdownSignalException> shutdown = new CompletableFuture<>();
        connection.addShutdownListener(shutdown::complete);
        BrokerControl.restart();
        ShutdownSignalException signal = shutdown.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        String reply = connectionClose(320, signal);
        assertTrue(reply.startsWith("CONNECTION_FORCED"), reply);
    }
}
