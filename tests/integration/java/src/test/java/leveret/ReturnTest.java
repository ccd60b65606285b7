package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Return;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ReturnTest extends BrokerTestCase {
    private final BlockingQueue<Return> returned = new LinkedBlockingQueue<>();

    @BeforeEach
    void listen() {
        channel.addReturnListener(returned::add);
    }

    private Return next() throws InterruptedException {
        Return message = returned.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(message, "no return in time");
        return message;
    }

    @Test
    void unroutableMandatoryMessageComesBackWhole() throws Exception {
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                .messageId("42")
                .contentType("text/plain")
                .headers(Map.of("answer", 42))
                .build();
        channel.basicPublish("amq.direct", "nobody listens", true, properties, bytes("come back"));
        Return message = next();
        assertEquals(312, message.getReplyCode());
        assertEquals("NO_ROUTE", message.getReplyText());
        assertEquals("amq.direct", message.getExchange());
        assertEquals("nobody listens", message.getRoutingKey());
        assertEquals("42", message.getProperties().getMessageId());
        assertEquals("text/plain", message.getProperties().getContentType());
        assertEquals(Map.of("answer", 42), message.getProperties().getHeaders());
        assertArrayEquals(bytes("come back"), message.getBody());
    }

    @Test
    void returnPrecedesItsConfirm() throws Exception {
        channel.confirmSelect();
        channel.basicPublish("", name("nowhere"), true, null, bytes("come back"));
        assertTrue(channel.waitForConfirms(PATIENCE_SECONDS * 1000));
        // Both are handled by the connection's own thread, the return first.
        assertEquals(1, returned.size());
    }

    @Test
    void routedOrOptionalMessageDoesNotComeBack() throws Exception {
        String queue = queue();
        channel.confirmSelect();
        channel.basicPublish("", queue, true, null, bytes("routed"));
        channel.basicPublish("", name("nowhere"), false, null, bytes("optional"));
        assertTrue(channel.waitForConfirms(PATIENCE_SECONDS * 1000));
        assertEquals(0, returned.size());
        assertReady(1, queue);
    }

    @Test
    void immediateIsNotImplemented() throws Exception {
        channel.basicPublish("", queue(), false, true, null, bytes("now"));
        String reply = assertConnectionClosed(540, () -> channel.basicQos(0));
        assertEquals("NOT_IMPLEMENTED - immediate=true", reply);
    }
}
