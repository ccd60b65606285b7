package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ConnectionTest extends BrokerTestCase {
    @Test
    void wrongPassword() throws Exception {
        ConnectionFactory factory = factory();
        factory.setPassword("wrong");
        Exception failure = assertThrows(AuthenticationFailureException.class, factory::newConnection);
        assertTrue(
                failure.getMessage()
                        .startsWith("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."),
                failure.getMessage());
    }

    @Test
    void unknownUser() throws Exception {
        ConnectionFactory factory = factory();
        factory.setUsername("nobody");
        assertThrows(AuthenticationFailureException.class, factory::newConnection);
    }

    @Test
    void missingVirtualHost() throws Exception {
        ConnectionFactory factory = factory();
        factory.setVirtualHost("nowhere");
        IOException failure = assertThrows(IOException.class, factory::newConnection);
        ShutdownSignalException signal = assertInstanceOf(ShutdownSignalException.class, failure.getCause());
        assertEquals("NOT_ALLOWED - vhost nowhere not found", connectionClose(530, signal));
    }

    @Test
    void whatTheServerSaysOfItself() {
        Map<String, Object> properties = connection.getServerProperties();
        for (String key : new String[] {"product", "version", "platform", "copyright", "information", "cluster_name"}) {
            assertTrue(properties.containsKey(key), key);
        }
        Map<?, ?> capabilities = assertInstanceOf(Map.class, properties.get("capabilities"));
        String[] expected = {
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
            "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
            "direct_reply_to"
        };
        for (String capability : expected) {
            assertEquals(true, capabilities.get(capability), capability);
        }
    }

    @Test
    void defaultsOfTheTuning() {
        assertEquals(2047, connection.getChannelMax());
        assertEquals(131072, connection.getFrameMax());
        assertEquals(60, connection.getHeartbeat());
    }

    @ParameterizedTest
    @ValueSource(ints = {5, 60, 120})
    void heartbeatIsNegotiated(int seconds) throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedHeartbeat(seconds);
        // The client takes the smaller of both values.
        assertEquals(Math.min(seconds, 60), open(factory).getHeartbeat());
    }

    /** With a heartbeat of one second, both sides would have given up an idle peer within three. */
    @Test
    void idleConnectionIsKeptByHeartbeats() throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedHeartbeat(1);
        Connection idle = open(factory);
        assertEquals(1, idle.getHeartbeat());
        var shutdown = new CountDownLatch(1);
        idle.addShutdownListener(cause -> shutdown.countDown());
        assertFalse(shutdown.await(4500, TimeUnit.MILLISECONDS), "an idle connection was dropped");
        idle.createChannel().queueDeclare();
    }

    @Test
    void smallFrames() throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedFrameMax(8192);
        Connection small = open(factory);
        assertEquals(8192, small.getFrameMax());
        try (var channel = small.createChannel()) {
            String queue = channel.queueDeclare().getQueue();
            byte[] body = new byte[100_000];
            body[99_999] = 1;
            channel.basicPublish("", queue, null, body);
            assertTrue(Arrays.equals(body, channel.basicGet(queue, true).getBody()));
        }
    }

    @Test
    void closeIsClean() throws Exception {
        connection.close();
        ShutdownSignalException signal = connection.getCloseReason();
        assertTrue(signal.isInitiatedByApplication());
        assertTrue(signal.isHardError());
    }
}
