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
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** The client builds up its topology again when the broker is back; see {@link BrokerControl}. */
@EnabledIfSystemProperty(named = "broker.control", matches = ".+")
class RecoveryTest extends BrokerTestCase {
    private Connection recovering() throws Exception {
        ConnectionFactory factory = factory();
        factory.setAutomaticRecoveryEnabled(true);
        factory.setTopologyRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(100);
        return open(factory);
    }

    /** Restarts the broker; returns when the connection has recovered. */
    private void restart(Connection connection) throws Exception {
        CountDownLatch recovered = new CountDownLatch(1);
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {}
        });
        BrokerControl.restart();
        await(recovered, "recovery");
    }

    @Test
    @Tag("quick")
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
        CompletableFuture<ShutdownSignalException> shutdown = new CompletableFuture<>();
        recovering.addShutdownListener(shutdown::complete);
        restart(recovering);

        String goodbye = connectionClose(320, shutdown.get(PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertTrue(goodbye.startsWith("CONNECTION_FORCED"), goodbye);
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
}
