package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.ShutdownNotifier;
import com.rabbitmq.client.ShutdownSignalException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ShutdownSignalTest extends BrokerTestCase {
    private static CompletableFuture<ShutdownSignalException> listen(ShutdownNotifier notifier) {
        CompletableFuture<ShutdownSignalException> signal = new CompletableFuture<>();
        notifier.addShutdownListener(signal::complete);
        return signal;
    }

    private static ShutdownSignalException take(CompletableFuture<ShutdownSignalException> signal) throws Exception {
        return signal.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    @Test
    void publishToNowhereClosesTheChannel() throws Exception {
        var signal = listen(channel);
        String exchange = name("exchange");
        publish(exchange, "", "m");
        String reply = channelClose(404, take(signal));
        assertEquals("NOT_FOUND - no exchange '" + exchange + "' in vhost '/'", reply);
        AMQP.Channel.Close close = (AMQP.Channel.Close) take(signal).getReason();
        assertEquals(60, close.getClassId());
        assertEquals(40, close.getMethodId());
        assertFalse(channel.isOpen());
        assertTrue(connection.isOpen());
    }

    @Test
    void confirmChannelToo() throws Exception {
        var signal = listen(channel);
        channel.confirmSelect();
        publish(name("exchange"), "", "m");
        channelClose(404, take(signal));
    }

    @Test
    void hardErrorClosesConnectionAndChannels() throws Exception {
        var ofConnection = listen(connection);
        var ofChannel = listen(channel);
        channel.basicPublish("", "", false, true, null, bytes("m"));
        connectionClose(540, take(ofConnection));
        connectionClose(540, take(ofChannel));
        assertFalse(connection.isOpen());
        assertFalse(channel.isOpen());
    }

    @Test
    void closingByTheClientIsItsOwn() throws Exception {
        var ofChannel = listen(channel);
        channel.close(200, "done");
        ShutdownSignalException signal = take(ofChannel);
        assertTrue(signal.isInitiatedByApplication());
        assertFalse(signal.isHardError());
        connection.createChannel(1).queueDeclare();
    }

    @Test
    void invalidExpirationClosesTheChannel() throws Exception {
        var signal = listen(channel);
        AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().expiration("soon").build();
        channel.basicPublish("", queue(), properties, bytes("m"));
        assertEquals("PRECONDITION_FAILED - invalid expiration 'soon': no_integer", channelClose(406, take(signal)));
    }
}
