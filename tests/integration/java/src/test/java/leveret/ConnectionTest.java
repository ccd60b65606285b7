package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ShutdownNotifier;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** The handshake, what ends a connection or a channel, and connections that are blocked. */
class ConnectionTest extends BrokerTestCase {
    private static CompletableFuture<ShutdownSignalException> listen(ShutdownNotifier notifier) {
        CompletableFuture<ShutdownSignalException> signal = new CompletableFuture<>();
        notifier.addShutdownListener(signal::complete);
        return signal;
    }

    private static <T> T take(CompletableFuture<T> coming) throws Exception {
        return coming.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    @Test
    @Tag("quick")
    void refusedConnections() throws Exception {
        ConnectionFactory wrong = factory();
        wrong.setPassword("wrong");
        Exception refused = assertThrows(AuthenticationFailureException.class, wrong::newConnection);
        String start = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.";
        assertTrue(refused.getMessage().startsWith(start), refused.getMessage());

        ConnectionFactory nowhere = factory();
        nowhere.setVirtualHost("nowhere");
        IOException failure = assertThrows(IOException.class, nowhere::newConnection);
        ShutdownSignalException signal = assertInstanceOf(ShutdownSignalException.class, failure.getCause());
        assertEquals("NOT_ALLOWED - vhost nowhere not found", connectionClose(530, signal));
    }

    @Test
    void whatIsAgreed() throws Exception {
        Map<?, ?> capabilities =
                assertInstanceOf(Map.class, connection.getServerProperties().get("capabilities"));
        for (String capability : new String[] {"publisher_confirms", "basic.nack", "connection.blocked"}) {
            assertEquals(true, capabilities.get(capability), capability);
        }
        assertEquals(2047, connection.getChannelMax());
        assertEquals(131072, connection.getFrameMax());
        assertEquals(60, connection.getHeartbeat());

        ConnectionFactory factory = factory();
        factory.setRequestedChannelMax(2);
        factory.setRequestedFrameMax(8192);
        factory.setRequestedHeartbeat(5);
        Connection small = open(factory);
        assertEquals(2, small.getChannelMax());
        assertEquals(8192, small.getFrameMax());
        assertEquals(5, small.getHeartbeat());
        Channel first = small.createChannel();
        small.createChannel().basicQos(1);
        assertNull(small.createChannel());
        byte[] body = new byte[100_000];
        body[99_999] = 1;
        String queue = first.queueDeclare().getQueue();
        first.basicPublish("", queue, null, body);
        assertArrayEquals(body, first.basicGet(queue, true).getBody());
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

    /** {@code broker.alarmed} is the URL of a broker whose memory alarm is set. */
    @Test
    @EnabledIfSystemProperty(named = "broker.alarmed", matches = ".+")
    void publishersAreBlocked() throws Exception {
        ConnectionFactory factory = factory();
        factory.setUri(System.getProperty("broker.alarmed"));
        Connection blocked = factory.newConnection();
        try {
            CompletableFuture<String> reason = new CompletableFuture<>();
            blocked.addBlockedListener(reason::complete, () -> {});
            blocked.createChannel().basicPublish("", "nobody", null, bytes("m"));
            assertEquals("low on memory", take(reason));
        } finally {
            // Nothing more is read from it, not even that it is to be closed.
            blocked.abort(1);
        }
    }

    @Test
    @Tag("quick")
    void channelErrors() throws Exception {
        var signal = listen(channel);
        String exchange = name("exchange");
        publish(exchange, "", "m");
        assertEquals("NOT_FOUND - no exchange '" + exchange + "' in vhost '/'", channelClose(404, take(signal)));
        AMQP.Channel.Close close = (AMQP.Channel.Close) take(signal).getReason();
        assertEquals(60, close.getClassId());
        assertEquals(40, close.getMethodId());
        assertThrows(AlreadyClosedException.class, () -> channel.basicQos(1));

        // The number may be used again, and the other channels go on.
        Channel again = connection.createChannel(channel.getChannelNumber());
        String queue = name("exclusive");
        again.queueDeclare(queue, false, true, false, null);
        Channel other = connection.createChannel();
        assertChannelClosed(403, () -> other.queueDeclare("amq.java", false, false, false, null));
        Channel stranger = open(factory()).createChannel();
        assertChannelClosed(405, () -> stranger.queueDeclarePassive(queue));
        String reply = assertChannelClosed(406, () -> again.queueDeclare(queue, false, true, true, null));
        assertTrue(reply.startsWith("PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue"), reply);
        assertTrue(connection.isOpen());
    }

    @Test
    void connectionErrors() throws Exception {
        var ofConnection = listen(connection);
        var ofChannel = listen(channel);
        channel.basicPublish("", "", false, true, null, bytes("m"));
        assertEquals("NOT_IMPLEMENTED - immediate=true", connectionClose(540, take(ofConnection)));
        connectionClose(540, take(ofChannel));
        assertFalse(connection.isOpen());
        assertFalse(channel.isOpen());
    }

    @Test
    void closingByTheClientIsItsOwn() throws Exception {
        var ofChannel = listen(channel);
        channel.close(200, "done");
        assertTrue(take(ofChannel).isInitiatedByApplication());
        assertFalse(take(ofChannel).isHardError());
        connection.createChannel(1).queueDeclare();
        connection.close();
        assertTrue(connection.getCloseReason().isInitiatedByApplication());
        assertTrue(connection.getCloseReason().isHardError());
    }
}
