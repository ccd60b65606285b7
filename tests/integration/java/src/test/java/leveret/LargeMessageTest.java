package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LargeMessageTest extends BrokerTestCase {
    private static byte[] noise(int length) {
        byte[] body = new byte[length];
        new Random(length).nextBytes(body);
        return body;
    }

    /** Around the largest body frame of the agreed 131072, whose payload is 8 bytes less. */
    @ParameterizedTest
    @ValueSource(ints = {1, 131_063, 131_064, 131_065, 262_128, 262_129, 5 * 1024 * 1024})
    void bodyComesBackWhole(int length) throws Exception {
        byte[] body = noise(length);
        String queue = queue();
        channel.basicPublish("", queue, null, body);
        assertArrayEquals(body, channel.basicGet(queue, true).getBody());
    }

    @Test
    void largeMessagesAmongSmallOnes() throws Exception {
        byte[] large = noise(5 * 1024 * 1024);
        String queue = queue();
        Deliveries deliveries = new Deliveries(channel);
        channel.basicConsume(queue, true, deliveries);
        channel.confirmSelect();
        for (int i = 0; i < 3; i++) {
            publish("", queue, "small");
            channel.basicPublish("", queue, null, large);
        }
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        for (int i = 0; i < 3; i++) {
            assertEquals("small", text(deliveries.take().getBody()));
            assertArrayEquals(large, deliveries.take().getBody());
        }
    }
}
