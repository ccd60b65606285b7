package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class QueueDeclareTest extends BrokerTestCase {
    @Test
    void serverNamesQueues() throws Exception {
        String first = channel.queueDeclare().getQueue();
        String second = channel.queueDeclare("", false, true, true, null).getQueue();
        assertTrue(first.matches("amq\\.gen-[A-Za-z0-9_-]{22}"), first);
        assertTrue(second.matches("amq\\.gen-[A-Za-z0-9_-]{22}"), second);
        assertNotEquals(first, second);
    }

    @ParameterizedTest
    @CsvSource({
        "false, false, false", "true, false, false", "false, false, true", "true, false, true", "false, true, false",
        "false, true, true"
    })
    void flagsAreKept(boolean durable, boolean exclusive, boolean autoDelete) throws Exception {
        String queue = name("queue");
        AMQP.Queue.DeclareOk declared = channel.queueDeclare(queue, durable, exclusive, autoDelete, null);
        assertEquals(queue, declared.getQueue());
        assertEquals(0, declared.getMessageCount());
        assertEquals(0, declared.getConsumerCount());
        channel.queueDeclare(queue, durable, exclusive, autoDelete, null);
        String reply = assertChannelClosed(
                406, () -> channel.queueDeclare(queue, durable, exclusive, !autoDelete, null));
        assertEquals(
                "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '" + queue + "' in vhost '/': received '"
                        + !autoDelete + "' but current is '" + autoDelete + "'",
                reply);
    }

    @Test
    void otherArgumentIsRefused() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, Map.of("x-message-ttl", 60000));
        channel.queueDeclare(queue, false, false, false, Map.of("x-message-ttl", 60000L));
        String reply = assertChannelClosed(
                406, () -> channel.queueDeclare(queue, false, false, false, Map.of("x-message-ttl", 60001)));
        assertEquals(
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '" + queue
                        + "' in vhost '/': received '60001' but current is '60000'",
                reply);
    }

    @Test
    void passive() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, null);
        publish("", queue, "a");
        publish("", queue, "b");
        assertReady(2, queue);
        channel.basicConsume(queue, false, new Deliveries(channel));
        AMQP.Queue.DeclareOk found = channel.queueDeclarePassive(queue);
        assertEquals(queue, found.getQueue());
        assertEquals(1, found.getConsumerCount());
        assertReady(0, queue);
    }

    @Test
    void passiveOfNothing() throws Exception {
        String queue = name("queue");
        String reply = assertChannelClosed(404, () -> channel.queueDeclarePassive(queue));
        assertEquals("NOT_FOUND - no queue '" + queue + "' in vhost '/'", reply);
    }

    @Test
    void withoutWaiting() throws Exception {
        String queue = name("queue");
        channel.queueDeclareNoWait(queue, false, false, false, null);
        channel.queueBindNoWait(queue, "amq.direct", queue, null);
        publish("amq.direct", queue, "a");
        assertReady(1, queue);
        assertEquals(0, channel.consumerCount(queue));
        channel.queueDeleteNoWait(queue, false, false);
        assertChannelClosed(404, () -> channel.queueDeclarePassive(queue));
    }

    @Test
    void reservedPrefixIsRefused() throws Exception {
        String reply = assertChannelClosed(403, () -> channel.queueDeclare("amq.java", false, false, false, null));
        assertEquals("ACCESS_REFUSED - queue name 'amq.java' contains reserved prefix 'amq.*'", reply);
    }

    @Test
    void purgeAndDeleteCountReadyMessages() throws Exception {
        String queue = queue();
        publish("", queue, "a");
        publish("", queue, "b");
        assertEquals(2, channel.queuePurge(queue).getMessageCount());
        publish("", queue, "c");
        assertEquals(1, channel.queueDelete(queue).getMessageCount());
        assertEquals(0, channel.queueDelete(queue).getMessageCount());
    }

    @Test
    void deleteIfEmptyAndIfUnused() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, false, null);
        publish("", queue, "a");
        Channel other = connection.createChannel();
        String reply = assertChannelClosed(406, () -> other.queueDelete(queue, false, true));
        assertEquals("PRECONDITION_FAILED - queue '" + queue + "' in vhost '/' not empty", reply);
        channel.basicConsume(queue, true, new Deliveries(channel));
        Channel third = connection.createChannel();
        reply = assertChannelClosed(406, () -> third.queueDelete(queue, true, false));
        assertEquals("PRECONDITION_FAILED - queue '" + queue + "' in vhost '/' in use", reply);
    }

    @Test
    void autoDeleteQueueGoesWithItsLastConsumer() throws Exception {
        String queue = name("queue");
        channel.queueDeclare(queue, false, false, true, null);
        String first = channel.basicConsume(queue, true, new Deliveries(channel));
        String second = channel.basicConsume(queue, true, new Deliveries(channel));
        channel.basicCancel(first);
        assertEquals(1, channel.consumerCount(queue));
        channel.basicCancel(second);
        assertChannelClosed(404, () -> channel.queueDeclarePassive(queue));
    }

    @Test
    void bindNeedsBothEnds() throws Exception {
        String queue = queue();
        String exchange = name("exchange");
        String reply = assertChannelClosed(404, () -> channel.queueBind(queue, exchange, ""));
        assertEquals("NOT_FOUND - no exchange '" + exchange + "' in vhost '/'", reply);
        Channel other = connection.createChannel();
        String missing = name("queue");
        reply = assertChannelClosed(404, () -> other.queueBind(missing, "amq.direct", ""));
        assertEquals("NOT_FOUND - no queue '" + missing + "' in vhost '/'", reply);
    }

    @Test
    void unbindIsForgiving() throws Exception {
        String queue = queue();
        assertNotNull(channel.queueUnbind(queue, "amq.direct", "never bound"));
        assertNotNull(channel.queueUnbind(queue, name("exchange"), ""));
    }
}
