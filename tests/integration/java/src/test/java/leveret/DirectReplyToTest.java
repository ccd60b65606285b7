package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;
import java.util.Map;
import org.junit.jupiter.api.Test;

class DirectReplyToTest extends BrokerTestCase {
    private static final String REPLY_TO = "amq.rabbitmq.reply-to";

    private static final class UpperCaseServer extends RpcServer {
        UpperCaseServer(Channel channel, String queue) throws Exception {
            super(channel, queue);
        }

        @Override
        public byte[] handleCall(Delivery request, AMQP.BasicProperties replyProperties) {
            return bytes(text(request.getBody()).toUpperCase());
        }
    }

    @Test
    void callsWithRpcClient() throws Exception {
        String queue = name("rpc");
        Channel serving = open(factory()).createChannel();
        serving.queueDeclare(queue, false, false, false, null);
        UpperCaseServer server = new UpperCaseServer(serving, queue);
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        thread.start();
        RpcClientParams params = new RpcClientParams()
                .channel(channel)
                .exchange("")
                .routingKey(queue)
                .replyTo(REPLY_TO)
                .timeout((int) PATIENCE_SECONDS * 1000);
        RpcClient client = new RpcClient(params);
        for (int i = 0; i < 50; i++) {
            assertEquals("CALL " + i, client.stringCall("call " + i));
        }
        client.close();
        // Its main loop ends when it gets no more requests.
        serving.close();
        thread.join(PATIENCE_SECONDS * 1000);
    }

    @Test
    void addressIsReplacedAndWorksFromElsewhere() throws Exception {
        String queue = name("rpc");
        channel.queueDeclare(queue, false, false, false, null);
        Deliveries replies = new Deliveries(channel);
        channel.basicConsume(REPLY_TO, true, replies);
        AMQP.BasicProperties request =
                new AMQP.BasicProperties.Builder().replyTo(REPLY_TO).build();
        channel.basicPublish("", queue, request, bytes("ping"));

        Channel serving = open(factory()).createChannel();
        Deliveries requests = new Deliveries(serving);
        serving.basicConsume(queue, true, requests);
        String address = requests.take().getProperties().getReplyTo();
        assertTrue(address.startsWith(REPLY_TO + "."), address);
        serving.basicPublish("", address, null, bytes("pong"));

        Delivery reply = replies.take();
        assertEquals("pong", text(reply.getBody()));
        assertEquals("", reply.getEnvelope().getExchange());
        assertEquals(address, reply.getEnvelope().getRoutingKey());
    }

    @Test
    void needsAutoAck() throws Exception {
        String reply = assertChannelClosed(406, () -> channel.basicConsume(REPLY_TO, false, new Deliveries(channel)));
        assertEquals("PRECONDITION_FAILED - reply consumer cannot acknowledge", reply);
    }

    @Test
    void needsAConsumerOnTheSameChannel() throws Exception {
        AMQP.BasicProperties request = new AMQP.BasicProperties.Builder()
                .replyTo(REPLY_TO)
                .headers(Map.of())
                .build();
        channel.basicPublish("", queue(), request, bytes("ping"));
        String reply = assertChannelClosed(406, () -> channel.basicQos(0));
        assertEquals("PRECONDITION_FAILED - fast reply consumer does not exist", reply);
    }
}
