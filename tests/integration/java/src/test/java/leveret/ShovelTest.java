package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.http.client.Client;
import com.rabbitmq.http.client.HttpClientException;
import com.rabbitmq.http.client.domain.ShovelDetails;
import com.rabbitmq.http.client.domain.ShovelInfo;
import com.rabbitmq.http.client.domain.ShovelStatus;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Shovels by Hop, the Java client of RabbitMQ's HTTP API. */
@EnabledIfSystemProperty(named = "broker.management", matches = ".+")
class ShovelTest extends BrokerTestCase {
    @Test
    void aShovelIsSetAndMovesMessagesAndIsDeleted() throws Exception {
        ConnectionFactory factory = factory();
        Client client = new Client(System.getProperty("broker.management") + "/api/");
        String vhost = factory.getVirtualHost();
        String name = name("shovel");
        String source = name("source");
        String target = name("target");
        channel.queueDeclare(source, true, false, false, null);
        channel.basicPublish("", source, null, "1".getBytes());
        ShovelDetails details = new ShovelDetails("amqp://", "amqp://", 1, false, Map.of("type", "moved"));
        details.setSourceQueue(source);
        details.setDestinationQueue(target);
        details.setAckMode("on-confirm");
        details.setSourcePrefetchCount(10L);
        details.setSourceDeleteAfter("never");
        client.declareShovel(vhost, new ShovelInfo(name, details));

        ShovelInfo info = client.getShovels(vhost).stream().filter(each -> each.getName().equals(name)).findFirst().get();
        assertEquals("shovel", info.getComponent());
        assertEquals(List.of("amqp://"), info.getDetails().getSourceURIs());
        assertEquals(source, info.getDetails().getSourceQueue());
        assertEquals(target, info.getDetails().getDestinationQueue());
        assertEquals(Map.of("type", "moved"), info.getDetails().getPublishProperties());
        assertEquals("on-confirm", info.getDetails().getAckMode());
        assertEquals(10L, info.getDetails().getSourcePrefetchCount());
        assertEquals("never", info.getDetails().getSourceDeleteAfter());

        ShovelStatus status = running(client, vhost, name);
        assertEquals("dynamic", status.getType());
        assertEquals("amqp://", status.getSourceURI());
        assertEquals("amqp://", status.getDestinationURI());
        assertTrue(channel.queueDeclarePassive(target).getMessageCount() >= 0);
        awaitMessage(target);
        assertEquals("moved", channel.basicGet(target, true).getProps().getType());

        ShovelDetails incomplete = new ShovelDetails("amqp://", "amqp://", 1, false, Map.of("type", "t"));
        assertThrows(HttpClientException.class, () -> client.declareShovel(vhost, new ShovelInfo("wrong", incomplete)));
        client.deleteShovel(vhost, name);
        assertTrue(client.getShovels(vhost).stream().noneMatch(each -> each.getName().equals(name)));
    }

    private static ShovelStatus running(Client client, String vhost, String name) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (true) {
            for (ShovelStatus each : client.getShovelsStatus(vhost)) {
                if (each.getName().equals(name) && "running".equals(each.getState())) {
                    return each;
                }
            }
            assertTrue(System.nanoTime() < deadline, "the shovel does not run");
            Thread.sleep(50);
        }
    }

    private void awaitMessage(String queue) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (channel.queueDeclarePassive(queue).getMessageCount() == 0) {
            assertTrue(System.nanoTime() < deadline, "no message has come");
            Thread.sleep(20);
        }
    }
}
