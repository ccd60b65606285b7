package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ExclusiveQueueTest extends BrokerTestCase {
    private String queue;
    private Connection stranger;

    @BeforeEach
    void declare() throws Exception {
        queue = name("queue");
        channel.queueDeclare(queue, false, true, false, null);
        stranger = open(factory());
    }

    private interface Use {
        void of(Channel channel) throws Exception;
    }

    private void assertLocked(Use use) throws Exception {
        Channel strange = stranger.createChannel();
        String reply = assertChannelClosed(405, () -> use.of(strange));
        // The text goes on, but reply texts are cut at 255 bytes.
        String start = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + queue + "' in vhost '/'. It";
        assertTrue(reply.startsWith(start), reply);
    }

    @Test
    void strangersAreLockedOut() throws Exception {
        assertLocked(strange -> strange.queueDeclarePassive(queue));
        assertLocked(strange -> strange.queueDeclare(queue, false, false, false, null));
        assertLocked(strange -> strange.queueBind(queue, "amq.direct", "key"));
        assertLocked(strange -> strange.queuePurge(queue));
        assertLocked(strange -> strange.queueDelete(queue));
        assertLocked(strange -> strange.basicGet(queue, true));
        assertLocked(strange -> strange.basicConsume(queue, true, new Deliveries(strange)));
    }

    @Test
    void strangersMayPublish() throws Exception {
        Channel strange = stranger.createChannel();
        strange.confirmSelect();
        strange.basicPublish("", queue, null, bytes("m"));
        strange.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        assertReady(1, queue);
    }

    @Test
    void allChannelsOfTheOwnerMayUseIt() throws Exception {
        Channel second = connection.createChannel();
        second.queueDeclare(queue, false, true, false, null);
        channel.close();
        assertEquals(0, second.messageCount(queue));
    }

    @Test
    void diesWithItsConnection() throws Exception {
        connection.close();
        Channel strange = stranger.createChannel();
        assertChannelClosed(404, () -> strange.queueDeclarePassive(queue));
    }
}
