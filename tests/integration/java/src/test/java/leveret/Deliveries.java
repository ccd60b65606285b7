package leveret;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A consumer that keeps what it gets for the test to take. */
final class Deliveries extends DefaultConsumer {
    private final BlockingQueue<Delivery> received = new LinkedBlockingQueue<>();

    /** Opens when the client has told this consumer its tag, which it does in another thread than basicConsume's. */
    private final CountDownLatch started = new CountDownLatch(1);

    /** Opens when the broker cancels this consumer. */
    final CountDownLatch cancelled = new CountDownLatch(1);

    /** Opens when the broker confirms that the client's cancel is done. */
    final CountDownLatch cancelConfirmed = new CountDownLatch(1);

    Deliveries(Channel channel) {
        super(channel);
    }

    @Override
    public void handleConsumeOk(String tag) {
        super.handleConsumeOk(tag);
        started.countDown();
    }

    @Override
    public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
        received.add(new Delivery(envelope, properties, body));
    }

    @Override
    public void handleCancel(String tag) {
        cancelled.countDown();
    }

    @Override
    public void handleCancelOk(String tag) {
        cancelConfirmed.countDown();
    }

    /** The next delivery; fails if none comes in time. */
    Delivery take() throws InterruptedException {
        Delivery delivery = received.poll(BrokerTestCase.PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(delivery, "no delivery in time");
        return delivery;
    }

    /** The next deliveries' bodies. */
    List<String> takeTexts(int count) throws InterruptedException {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            texts.add(BrokerTestCase.text(take().getBody()));
        }
        return texts;
    }

    /**
     * Asserts that the broker sent nothing more up to now.
     *
     * <p>A channel's frames come in order: what the broker had sent before its answer to a request has arrived by then.
     * The client hands deliveries to consumers in another thread, but a cancel-ok after them.
     */
    void assertNoMore() throws IOException, InterruptedException {
        BrokerTestCase.await(started, "consume-ok");
        getChannel().basicCancel(getConsumerTag());
        BrokerTestCase.await(cancelConfirmed, "cancel-ok");
        assertNull(received.peek(), "a delivery too many");
    }
}
