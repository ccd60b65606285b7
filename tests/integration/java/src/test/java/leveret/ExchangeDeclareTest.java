package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.BuiltinExchangeType;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class ExchangeDeclareTest extends BrokerTestCase {
    @ParameterizedTest
    @EnumSource(names = {"DIRECT", "FANOUT", "TOPIC", "HEADERS"})
    void everyTypeIsDeclaredAndFoundAgain(BuiltinExchangeType type) throws Exception {
        String exchange = name("exchange");
        assertNotNull(channel.exchangeDeclare(exchange, type));
        assertNotNull(channel.exchangeDeclarePassive(exchange));
        assertNotNull(channel.exchangeDelete(exchange));
        String reply = assertChannelClosed(404, () -> channel.exchangeDeclarePassive(exchange));
        assertEquals("NOT_FOUND - no exchange '" + exchange + "' in vhost '/'", reply);
    }

    @ParameterizedTest
    @CsvSource({
        "false, false, false", "true, false, false", "false, true, false", "true, true, false", "false, false, true",
        "true, true, true"
    })
    void flagsAreKept(boolean durable, boolean autoDelete, boolean internal) throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "direct", durable, autoDelete, internal, null);
        channel.exchangeDeclare(exchange, "direct", durable, autoDelete, internal, null);
        String reply = assertChannelClosed(
                406, () -> channel.exchangeDeclare(exchange, "direct", !durable, autoDelete, internal, null));
        assertEquals(
                "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange '" + exchange + "' in vhost '/': received '"
                        + !durable + "' but current is '" + durable + "'",
                reply);
    }

    @Test
    void otherTypeIsRefused() throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "direct");
        String reply = assertChannelClosed(406, () -> channel.exchangeDeclare(exchange, "topic"));
        assertTrue(reply.contains("inequivalent arg 'type'"), reply);
    }

    @Test
    void withoutWaiting() throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclareNoWait(exchange, BuiltinExchangeType.TOPIC, false, false, false, null);
        channel.exchangeDeclarePassive(exchange);
        channel.exchangeDeleteNoWait(exchange, false);
        assertChannelClosed(404, () -> channel.exchangeDeclarePassive(exchange));
    }

    @ParameterizedTest
    @ValueSource(strings = {"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"})
    void predeclared(String exchange) throws Exception {
        channel.exchangeDeclarePassive(exchange);
        String reply = assertChannelClosed(403, () -> channel.exchangeDelete(exchange));
        assertEquals("ACCESS_REFUSED - deletion of system exchange '" + exchange + "' in vhost '/' not allowed", reply);
    }

    @Test
    void reservedPrefixIsRefused() throws Exception {
        String reply = assertChannelClosed(403, () -> channel.exchangeDeclare("amq.java", "direct"));
        assertEquals("ACCESS_REFUSED - exchange name 'amq.java' contains reserved prefix 'amq.*'", reply);
    }

    @Test
    void defaultExchangeIsOffLimits() throws Exception {
        String reply = assertChannelClosed(403, () -> channel.exchangeDelete(""));
        assertEquals("ACCESS_REFUSED - operation not permitted on the default exchange", reply);
    }

    @Test
    void internalExchangeCannotBePublishedTo() throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "fanout", false, false, true, null);
        publish(exchange, "", "no");
        assertChannelClosed(403, () -> channel.basicQos(1));
    }

    @Test
    void autoDeleteExchangeGoesWithItsLastBinding() throws Exception {
        String exchange = name("exchange");
        String queue = queue();
        channel.exchangeDeclare(exchange, "direct", false, true, null);
        channel.queueBind(queue, exchange, "a");
        channel.queueBind(queue, exchange, "b");
        channel.queueUnbind(queue, exchange, "a");
        channel.exchangeDeclarePassive(exchange);
        channel.queueUnbind(queue, exchange, "b");
        assertChannelClosed(404, () -> channel.exchangeDeclarePassive(exchange));
    }

    @Test
    void usedExchangeIsNotDeletedIfUnused() throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "direct");
        channel.queueBind(queue(), exchange, "");
        String reply = assertChannelClosed(406, () -> channel.exchangeDelete(exchange, true));
        assertEquals("PRECONDITION_FAILED - exchange '" + exchange + "' in vhost '/' in use", reply);
    }

    @Test
    void unknownArgumentsAreAccepted() throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "direct", false, false, Map.of("x-java", 1, "nested", Map.of("a", true)));
        channel.exchangeDeclarePassive(exchange);
    }
}
