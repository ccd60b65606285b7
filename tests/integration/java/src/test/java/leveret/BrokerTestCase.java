package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;

/** Gives each test a connection, a channel, and names that no other test uses; removes afterwards what bore them. */
abstract class BrokerTestCase {
    /** How long a test waits for something that has to come. */
    static final long PATIENCE_SECONDS = 60;

    private final List<Connection> opened = new ArrayList<>();
    private final List<String> names = new ArrayList<>();

    protected Connection connection;
    protected Channel channel;

    @BeforeEach
    void openChannel() throws Exception {
        connection = open(factory());
        channel = connection.createChannel();
    }

    @AfterEach
    void closeAndRemove() throws Exception {
        for (Connection each : opened) {
            if (each.isOpen()) {
                each.close();
            }
        }
        try (Connection cleaner = factory().newConnection(); Channel broom = cleaner.createChannel()) {
            for (String each : names) {
                broom.queueDelete(each);
                broom.exchangeDelete(each);
            }
        }
    }

    /** The broker under test; recovery is off, so that a test sees its connection die. */
    static ConnectionFactory factory() throws Exception {
        String url = System.getProperty("broker.url", System.getenv("BROKER_URL"));
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url == null ? "amqp://guest:guest@127.0.0.1:5672" : url);
        factory.setAutomaticRecoveryEnabled(false);
        return factory;
    }

    /** Opens a connection that is closed after the test. */
    Connection open(ConnectionFactory factory) throws Exception {
        Connection connection = factory.newConnection();
        opened.add(connection);
        return connection;
    }

    /** A name for a queue or an exchange. */
    String name(String what) {
        String name = "java." + what + "." + UUID.randomUUID();
        names.add(name);
        return name;
    }

    /** A server-named queue of this connection, which lives as long. */
    String queue() throws IOException {
        return channel.queueDeclare("", false, true, false, null).getQueue();
    }

    void publish(String exchange, String routingKey, String text) throws IOException {
        channel.basicPublish(exchange, routingKey, null, bytes(text));
    }

    /** Takes all that waits in the queue. What the same channel has published before is there by then. */
    static List<String> drain(Channel channel, String queue) throws IOException {
        List<String> texts = new ArrayList<>();
        GetResponse response = channel.basicGet(queue, true);
        while (response != null) {
            texts.add(text(response.getBody()));
            response = channel.basicGet(queue, true);
        }
        return texts;
    }

    /**
     * Asserts that the queue comes to hold this many ready messages.
     *
     * <p>A broker may count before it gets to the publishes and acks that the channel sent earlier; RabbitMQ does.
     */
    static void assertReady(int expected, Channel channel, String queue) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        long ready = channel.messageCount(queue);
        while (ready != expected && System.nanoTime() < deadline) {
            ready = channel.messageCount(queue);
        }
        assertEquals(expected, ready);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    static void await(CountDownLatch latch, String what) throws InterruptedException {
        assertTrue(latch.await(PATIENCE_SECONDS, TimeUnit.SECONDS), () -> "not in time: " + what);
    }

    /** Asserts that the call fails because the broker closes the channel with this code; returns the reply text. */
    static String assertChannelClosed(int replyCode, Executable call) {
        Throwable cause = assertThrows(IOException.class, call).getCause();
        return channelClose(replyCode, assertInstanceOf(ShutdownSignalException.class, cause));
    }

    /** Asserts that this is the broker's channel.close with this code; returns the reply text. */
    static String channelClose(int replyCode, ShutdownSignalException signal) {
        assertTrue(!signal.isHardError(), () -> "a connection error: " + signal);
        AMQP.Channel.Close close = assertInstanceOf(AMQP.Channel.Close.class, signal.getReason());
        assertEquals(replyCode, close.getReplyCode(), close::getReplyText);
        return close.getReplyText();
    }

    /** Asserts that this is the broker's connection.close with this code; returns the reply text. */
    static String connectionClose(int replyCode, ShutdownSignalException signal) {
        assertTrue(signal.isHardError(), () -> "not a connection error: " + signal);
        AMQP.Connection.Close close = assertInstanceOf(AMQP.Connection.Close.class, signal.getReason());
        assertEquals(replyCode, close.getReplyCode(), close::getReplyText);
        return close.getReplyText();
    }
}
