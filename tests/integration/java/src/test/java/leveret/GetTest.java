package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.GetResponse;
import org.junit.jupiter.api.Test;

class GetTest extends BrokerTestCase {
    @Test
    void emptyQueue() throws Exception {
        assertNull(channel.basicGet(queue(), true));
    }

    @Test
    void envelopeAndRemainder() throws Exception {
        String queue = queue();
        channel.queueBind(queue, "amq.direct", queue);
        publish("amq.direct", queue, "first");
        publish("", queue, "second");
        GetResponse first = channel.basicGet(queue, false);
        assertEquals("first", text(first.getBody()));
        assertEquals("amq.direct", first.getEnvelope().getExchange());
        assertEquals(queue, first.getEnvelope().getRoutingKey());
        assertEquals(1, first.getEnvelope().getDeliveryTag());
        assertFalse(first.getEnvelope().isRedeliver());
        assertEquals(1, first.getMessageCount());
        GetResponse second = channel.basicGet(queue, true);
        assertEquals("second", text(second.getBody()));
        assertEquals("", second.getEnvelope().getExchange());
        assertEquals(2, second.getEnvelope().getDeliveryTag());
        assertEquals(0, second.getMessageCount());
        assertNull(channel.basicGet(queue, false));
    }

    @Test
    void emptyBody() throws Exception {
        String queue = queue();
        channel.basicPublish("", queue, null, new byte[0]);
        assertEquals(0, channel.basicGet(queue, true).getBody().length);
    }

    @Test
    void missingQueue() throws Exception {
        String queue = name("queue");
        String reply = assertChannelClosed(404, () -> channel.basicGet(queue, true));
        assertEquals("NOT_FOUND - no queue '" + queue + "' in vhost '/'", reply);
    }
}
