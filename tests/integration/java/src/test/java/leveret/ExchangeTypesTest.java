package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ExchangeTypesTest extends BrokerTestCase {
    private String exchange(BuiltinExchangeType type) throws Exception {
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, type);
        return exchange;
    }

    private void publish(String exchange, Map<String, Object> headers) throws Exception {
        AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().headers(headers).build();
        channel.basicPublish(exchange, "", properties, bytes("m"));
    }

    @Test
    void defaultExchangeRoutesByQueueName() throws Exception {
        String queue = queue();
        String other = queue();
        publish("", queue, "m");
        assertEquals(1, drain(channel, queue).size());
        assertEquals(0, drain(channel, other).size());
    }

    @Test
    void direct() throws Exception {
        String exchange = exchange(BuiltinExchangeType.DIRECT);
        String queue = queue();
        channel.queueBind(queue, exchange, "red");
        channel.queueBind(queue, exchange, "red");
        channel.queueBind(queue, exchange, "");
        publish(exchange, "red", "m");
        publish(exchange, "", "m");
        publish(exchange, "RED", "m");
        publish(exchange, "re", "m");
        assertEquals(2, drain(channel, queue).size());
    }

    @Test
    void fanout() throws Exception {
        String exchange = exchange(BuiltinExchangeType.FANOUT);
        String first = queue();
        String second = queue();
        channel.queueBind(first, exchange, "");
        channel.queueBind(first, exchange, "twice is once");
        channel.queueBind(second, exchange, "whatever");
        publish(exchange, "any key", "m");
        assertEquals(1, drain(channel, first).size());
        assertEquals(1, drain(channel, second).size());
    }

    @ParameterizedTest
    @CsvSource({
        "a.b.c, a.b.c, 1", "*.b.c, a.b.c, 1", "a.*, a.b.c, 0", "a.#, a.b.c, 1", "a.#, a, 1", "#, a.b, 1", "#.c, a.b.c, 1",
        "a.#.c, a.c, 1", "*, a.b, 0", "a.*.c, a..c, 1", "a*, ab, 0", "#.b.#, a.b.c.d, 1", "A.b, a.b, 0"
    })
    void topic(String pattern, String key, int expected) throws Exception {
        String exchange = exchange(BuiltinExchangeType.TOPIC);
        String queue = queue();
        channel.queueBind(queue, exchange, pattern);
        publish(exchange, key, "m");
        assertEquals(expected, drain(channel, queue).size());
    }

    @ParameterizedTest
    @CsvSource({"all, 1", "any, 3"})
    void headers(String match, int expected) throws Exception {
        String exchange = exchange(BuiltinExchangeType.HEADERS);
        String queue = queue();
        channel.queueBind(queue, exchange, "", Map.of("x-match", match, "colour", "red", "size", 5));
        publish(exchange, Map.of("colour", "red", "size", 5, "more", true));
        publish(exchange, Map.of("colour", "red"));
        publish(exchange, Map.of("size", 5L));
        publish(exchange, Map.of("size", "5"));
        publish(exchange, Map.of());
        assertEquals(expected, drain(channel, queue).size());
    }

    @Test
    void headersMatchAllByDefaultAndVoidMeansPresent() throws Exception {
        String exchange = exchange(BuiltinExchangeType.HEADERS);
        String queue = queue();
        Map<String, Object> arguments = new HashMap<>();
        arguments.put("colour", "red");
        arguments.put("shape", null);
        channel.queueBind(queue, exchange, "", arguments);
        publish(exchange, Map.of("colour", "red", "shape", "round"));
        publish(exchange, Map.of("colour", "red"));
        assertEquals(1, drain(channel, queue).size());
    }

    @Test
    void unbindByKeyAndArguments() throws Exception {
        String exchange = exchange(BuiltinExchangeType.HEADERS);
        String queue = queue();
        channel.queueBind(queue, exchange, "", Map.of("a", 1));
        channel.queueUnbind(queue, exchange, "", Map.of("a", 2));
        publish(exchange, Map.of("a", 1));
        channel.queueUnbind(queue, exchange, "", Map.of("a", 1));
        publish(exchange, Map.of("a", 1));
        assertEquals(1, drain(channel, queue).size());
    }

    @Test
    void exchangeToExchange() throws Exception {
        String source = exchange(BuiltinExchangeType.TOPIC);
        String middle = exchange(BuiltinExchangeType.FANOUT);
        String queue = queue();
        channel.exchangeBind(middle, source, "logs.#");
        channel.exchangeBind(source, middle, "a circle is no trouble");
        channel.queueBind(queue, middle, "");
        publish(source, "logs.kernel", "m");
        publish(source, "mail", "m");
        assertEquals(1, drain(channel, queue).size());
        channel.exchangeUnbind(middle, source, "logs.#");
        publish(source, "logs.kernel", "m");
        assertEquals(0, drain(channel, queue).size());
    }

    @Test
    void alternateExchange() throws Exception {
        String alternate = exchange(BuiltinExchangeType.FANOUT);
        String exchange = name("exchange");
        channel.exchangeDeclare(exchange, "direct", false, false, Map.of("alternate-exchange", alternate));
        String wanted = queue();
        String rest = queue();
        channel.queueBind(wanted, exchange, "wanted");
        channel.queueBind(rest, alternate, "");
        publish(exchange, "wanted", "m");
        publish(exchange, "other", "m");
        assertEquals(1, drain(channel, wanted).size());
        assertEquals("other", channel.basicGet(rest, true).getEnvelope().getRoutingKey());
        assertEquals(0, drain(channel, rest).size());
    }

    @Test
    void carbonCopies() throws Exception {
        String to = queue();
        String copy = queue();
        String blind = queue();
        Map<String, Object> headers = Map.of("CC", List.of(copy), "BCC", List.of(blind));
        AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().headers(headers).build();
        channel.basicPublish("", to, properties, bytes("m"));
        for (String queue : new String[] {to, copy, blind}) {
            Map<String, Object> received = channel.basicGet(queue, true).getProps().getHeaders();
            assertEquals(Set.of("CC"), received.keySet());
        }
    }
}
