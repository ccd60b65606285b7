package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Return;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class TransactionTest extends BrokerTestCase {
    @Test
    void publishesAppearAtCommit() throws Exception {
        String queue = queue();
        Channel observer = connection.createChannel();
        channel.txSelect();
        publish("", queue, "a");
        publish("", queue, "b");
        // An answer on this channel proves that the publishes have been read.
        channel.basicQos(0);
        assertEquals(List.of(), drain(observer, queue));
        channel.txCommit();
        assertEquals(List.of("a", "b"), drain(observer, queue));
    }

    @Test
    void rollbackForgetsPublishes() throws Exception {
        String queue = queue();
        channel.txSelect();
        publish("", queue, "a");
        channel.txRollback();
        channel.txCommit();
        assertEquals(List.of(), drain(channel, queue));
    }

    @Test
    void acksCountAtCommit() throws Exception {
        String queue = queue();
        publish("", queue, "a");
        publish("", queue, "b");
        Channel tx = connection.createChannel();
        tx.txSelect();
        tx.basicGet(queue, false);
        tx.basicGet(queue, false);
        tx.basicAck(1, false);
        tx.txCommit();
        tx.basicAck(2, false);
        tx.close();
        assertEquals(List.of("b"), drain(channel, queue));
    }

    @Test
    void rollbackMakesAcksUndone() throws Exception {
        String queue = queue();
        publish("", queue, "a");
        channel.txSelect();
        channel.basicGet(queue, false);
        channel.basicAck(1, false);
        channel.txRollback();
        assertNull(channel.basicGet(queue, false));
        channel.basicAck(1, false);
        channel.txCommit();
        channel.close();
        assertEquals(List.of(), drain(connection.createChannel(), queue));
    }

    @Test
    void returnsComeWithTheCommit() throws Exception {
        BlockingQueue<Return> returned = new LinkedBlockingQueue<>();
        channel.addReturnListener(returned::add);
        channel.txSelect();
        channel.basicPublish("", name("nowhere"), true, null, bytes("back"));
        channel.basicQos(0);
        assertEquals(0, returned.size());
        channel.txCommit();
        assertNotNull(returned.poll(PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    @Test
    void commitNeedsSelect() throws Exception {
        String reply = assertChannelClosed(406, () -> channel.txCommit());
        assertEquals("PRECONDITION_FAILED - channel is not transactional", reply);
        Channel other = connection.createChannel();
        assertChannelClosed(406, () -> other.txRollback());
    }

    @Test
    void transactionsDoNotMixWithConfirms() throws Exception {
        channel.txSelect();
        String reply = assertChannelClosed(406, () -> channel.confirmSelect());
        assertEquals("PRECONDITION_FAILED - cannot switch from tx to confirm mode", reply);
    }
}
