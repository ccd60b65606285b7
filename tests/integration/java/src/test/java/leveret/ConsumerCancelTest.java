package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import java.util.List;
import org.junit.jupiter.api.Test;

class ConsumerCancelTest extends BrokerTestCase {
    @Test
    void deletedQueueCancelsItsConsumers() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries same = new Deliveries(channel);
        Deliveries other = new Deliveries(open(factory()).createChannel());
        channel.basicConsume(queue, false, same);
        other.getChannel().basicConsume(queue, false, other);
        channel.queueDelete(queue);
        await(same.cancelled, "basic.cancel on the deleting channel");
        await(other.cancelled, "basic.cancel on another connection");
        assertTrue(channel.isOpen());
        assertTrue(other.getChannel().isOpen());
    }

    @Test
    void channelGoesOnAfterIt() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries first = new Deliveries(channel);
        channel.basicConsume(queue, true, "tag", first);
        Channel other = connection.createChannel();
        other.queueDelete(queue);
        await(first.cancelled, "basic.cancel");
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries second = new Deliveries(channel);
        channel.basicConsume(queue, true, "tag", second);
        publish("", queue, "m");
        assertEquals(List.of("m"), second.takeTexts(1));
    }

    @Test
    void nothingComesAfterCancelOk() throws Exception {
        String queue = queue();
        Deliveries deliveries = new Deliveries(channel);
        String tag = channel.basicConsume(queue, false, deliveries);
        publish("", queue, "before");
        assertEquals(List.of("before"), deliveries.takeTexts(1));
        channel.basicCancel(tag);
        await(deliveries.cancelConfirmed, "cancel-ok");
        publish("", queue, "after");
        assertReady(1, queue);
        // What it held before is still the channel's to settle.
        channel.basicAck(1, false);
        assertEquals("after", text(channel.basicGet(queue, true).getBody()));
    }

    @Test
    void usedTagClosesTheConnection() throws Exception {
        String queue = queue();
        channel.basicConsume(queue, true, "tag", new Deliveries(channel));
        String reply =
                assertConnectionClosed(530, () -> channel.basicConsume(queue, true, "tag", new Deliveries(channel)));
        assertEquals("NOT_ALLOWED - attempt to reuse consumer tag 'tag'", reply);
    }

    @Test
    void exclusiveConsumer() throws Exception {
        String queue = queue();
        String tag = channel.basicConsume(queue, true, "", false, true, null, new Deliveries(channel));
        Channel other = connection.createChannel();
        String reply = assertChannelClosed(403, () -> other.basicConsume(queue, true, new Deliveries(other)));
        assertEquals("ACCESS_REFUSED - queue '" + queue + "' in vhost '/' in exclusive use", reply);
        channel.basicCancel(tag);
        Channel third = connection.createChannel();
        third.basicConsume(queue, true, new Deliveries(third));
        assertEquals(1, channel.consumerCount(queue));
    }

    @Test
    void missingQueue() throws Exception {
        String queue = name("queue");
        String reply = assertChannelClosed(404, () -> channel.basicConsume(queue, true, new Deliveries(channel)));
        assertEquals("NOT_FOUND - no queue '" + queue + "' in vhost '/'", reply);
    }
}
