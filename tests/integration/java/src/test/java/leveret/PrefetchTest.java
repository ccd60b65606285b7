package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import com.rabbitmq.client.Delivery;
import java.util.List;
import org.junit.jupiter.api.Test;

class PrefetchTest extends BrokerTestCase {
    private String queueWith(int count) throws Exception {
        String queue = queue();
        channel.confirmSelect();
        for (int i = 1; i <= count; i++) {
            publish("", queue, "m" + i);
        }
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        return queue;
    }

    @Test
    void limitOfAConsumer() throws Exception {
        String queue = queueWith(5);
        Deliveries deliveries = new Deliveries(channel);
        channel.basicQos(2);
        channel.basicConsume(queue, false, deliveries);
        Delivery first = deliveries.take();
        assertEquals("m1", text(first.getBody()));
        assertEquals(List.of("m2"), deliveries.takeTexts(1));
        assertReady(3, queue);
        channel.basicAck(first.getEnvelope().getDeliveryTag(), false);
        assertEquals(List.of("m3"), deliveries.takeTexts(1));
        assertReady(2, queue);
        deliveries.assertNoMore();
    }

    @Test
    void ackOfMultipleMakesRoomForAsMany() throws Exception {
        String queue = queueWith(7);
        Deliveries deliveries = new Deliveries(channel);
        channel.basicQos(3);
        channel.basicConsume(queue, false, deliveries);
        assertEquals(List.of("m1", "m2", "m3"), deliveries.takeTexts(3));
        channel.basicAck(3, true);
        assertEquals(List.of("m4", "m5", "m6"), deliveries.takeTexts(3));
        deliveries.assertNoMore();
        assertReady(1, queue);
    }

    @Test
    void limitOfTheChannelIsShared() throws Exception {
        String queue = queueWith(5);
        Deliveries first = new Deliveries(channel);
        Deliveries second = new Deliveries(channel);
        channel.basicQos(3, true);
        channel.basicConsume(queue, false, first);
        channel.basicConsume(queue, false, second);
        assertReady(2, queue);
        channel.basicAck(0, true);
        assertReady(0, queue);
    }

    @Test
    void limitsOfConsumersAddUp() throws Exception {
        String queue = queueWith(5);
        channel.basicQos(1);
        channel.basicConsume(queue, false, new Deliveries(channel));
        channel.basicQos(3);
        channel.basicConsume(queue, false, new Deliveries(channel));
        assertReady(1, queue);
    }

    @Test
    void autoAckIgnoresTheLimit() throws Exception {
        String queue = queueWith(5);
        Deliveries deliveries = new Deliveries(channel);
        channel.basicQos(1);
        channel.basicConsume(queue, true, deliveries);
        assertEquals(List.of("m1", "m2", "m3", "m4", "m5"), deliveries.takeTexts(5));
    }

    @Test
    void consumersTakeTurns() throws Exception {
        String queue = queue();
        Deliveries first = new Deliveries(channel);
        Deliveries second = new Deliveries(channel);
        String firstTag = channel.basicConsume(queue, true, first);
        String secondTag = channel.basicConsume(queue, true, second);
        assertNotEquals(firstTag, secondTag);
        for (int i = 1; i <= 4; i++) {
            publish("", queue, "m" + i);
        }
        assertEquals(List.of("m1", "m3"), first.takeTexts(2));
        assertEquals(List.of("m2", "m4"), second.takeTexts(2));
    }

    @Test
    void prefetchSizeIsNotImplemented() throws Exception {
        String reply = assertConnectionClosed(540, () -> channel.basicQos(1, 0, false));
        assertEquals("NOT_IMPLEMENTED - prefetch_size!=0 (1)", reply);
    }
}
