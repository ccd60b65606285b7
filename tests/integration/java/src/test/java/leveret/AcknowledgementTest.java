package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class AcknowledgementTest extends BrokerTestCase {
    private String queue;

    @BeforeEach
    void publishFour() throws Exception {
        queue = queue();
        for (int i = 1; i <= 4; i++) {
            publish("", queue, "m" + i);
        }
    }

    @Test
    void tagsCountFromOne() throws Exception {
        Deliveries deliveries = new Deliveries(channel);
        String tag = channel.basicConsume(queue, false, deliveries);
        assertTrue(tag.matches("amq\\.ctag-[A-Za-z0-9_-]{22}"), tag);
        for (long expected = 1; expected <= 4; expected++) {
            Delivery delivery = deliveries.take();
            assertEquals(expected, delivery.getEnvelope().getDeliveryTag());
            assertFalse(delivery.getEnvelope().isRedeliver());
            channel.basicAck(expected, false);
        }
    }

    @Test
    void whatIsAckedIsGone() throws Exception {
        Deliveries deliveries = new Deliveries(channel);
        Channel other = connection.createChannel();
        other.basicConsume(queue, false, deliveries);
        assertEquals(List.of("m1", "m2", "m3", "m4"), deliveries.takeTexts(4));
        other.basicAck(2, false);
        other.basicAck(4, false);
        other.close();
        assertEquals(List.of("m1", "m3"), drain(channel, queue));
    }

    @Test
    void ackOfMultipleCoversAllBelow() throws Exception {
        Channel other = connection.createChannel();
        for (int i = 0; i < 4; i++) {
            other.basicGet(queue, false);
        }
        other.basicAck(3, true);
        other.close();
        assertEquals(List.of("m4"), drain(channel, queue));
    }

    @Test
    void requeuedMessagesKeepTheirPlaces() throws Exception {
        for (int i = 0; i < 3; i++) {
            channel.basicGet(queue, false);
        }
        channel.basicReject(2, true);
        channel.basicNack(3, false, true);
        channel.basicNack(1, false, true);
        GetResponse head = channel.basicGet(queue, true);
        assertEquals("m1", text(head.getBody()));
        assertTrue(head.getEnvelope().isRedeliver());
        assertEquals(List.of("m2", "m3", "m4"), drain(channel, queue));
    }

    @Test
    void nackOfMultipleRequeuesAll() throws Exception {
        for (int i = 0; i < 3; i++) {
            channel.basicGet(queue, false);
        }
        channel.basicNack(3, true, true);
        assertReady(4, queue);
        assertEquals(List.of("m1", "m2", "m3", "m4"), drain(channel, queue));
    }

    @Test
    void withoutRequeueTheyAreDropped() throws Exception {
        for (int i = 0; i < 3; i++) {
            channel.basicGet(queue, false);
        }
        channel.basicReject(1, false);
        channel.basicNack(3, true, false);
        assertEquals(List.of("m4"), drain(channel, queue));
    }

    @Test
    void nackedMessageComesBackToTheConsumer() throws Exception {
        Deliveries deliveries = new Deliveries(channel);
        channel.basicQos(1);
        channel.basicConsume(queue, false, deliveries);
        Delivery first = deliveries.take();
        channel.basicNack(first.getEnvelope().getDeliveryTag(), false, true);
        Delivery again = deliveries.take();
        assertEquals("m1", text(again.getBody()));
        assertTrue(again.getEnvelope().isRedeliver());
        assertEquals(2, again.getEnvelope().getDeliveryTag());
    }

    @Test
    void recoverRequeuesWhatIsOutstanding() throws Exception {
        channel.basicGet(queue, false);
        channel.basicGet(queue, false);
        channel.basicRecover();
        assertReady(4, queue);
        assertEquals(List.of("m1", "m2", "m3", "m4"), drain(channel, queue));
    }

    @Test
    void unknownTagClosesTheChannel() throws Exception {
        channel.basicAck(99, false);
        String reply = assertChannelClosed(406, () -> channel.basicQos(0));
        assertEquals("PRECONDITION_FAILED - unknown delivery tag 99", reply);
        assertEquals(4, drain(connection.createChannel(), queue).size());
    }

    @Test
    void tagIsSettledOnce() throws Exception {
        channel.basicGet(queue, false);
        channel.basicAck(1, false);
        channel.basicNack(1, false, true);
        String reply = assertChannelClosed(406, () -> channel.basicQos(0));
        assertEquals("PRECONDITION_FAILED - unknown delivery tag 1", reply);
    }

    @Test
    void dyingConnectionRequeues() throws Exception {
        String shared = name("queue");
        channel.queueDeclare(shared, false, false, false, null);
        publish("", shared, "m");
        var other = open(factory());
        Deliveries deliveries = new Deliveries(other.createChannel());
        deliveries.getChannel().basicConsume(shared, false, deliveries);
        assertEquals(List.of("m"), deliveries.takeTexts(1));
        other.close();
        GetResponse back = channel.basicGet(shared, true);
        assertEquals("m", text(back.getBody()));
        assertTrue(back.getEnvelope().isRedeliver());
    }
}
