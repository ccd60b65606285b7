package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.LongString;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Properties and header tables come back as they went, with their types. */
class PropertiesTest extends BrokerTestCase {
    private static final Date MOMENT = new Date(1_700_000_000_000L);

    private AMQP.BasicProperties roundTrip(AMQP.BasicProperties properties) throws Exception {
        String queue = queue();
        channel.basicPublish("", queue, properties, bytes("m"));
        return channel.basicGet(queue, true).getProps();
    }

    private Map<String, Object> roundTrip(Map<String, Object> headers) throws Exception {
        return roundTrip(new AMQP.BasicProperties.Builder().headers(headers).build())
                .getHeaders();
    }

    /** Long strings arrive as LongString; all else has equals(). */
    private static Object plain(Object value) {
        if (value instanceof LongString) {
            return value.toString();
        }
        if (value instanceof List<?> list) {
            return list.stream().map(PropertiesTest::plain).toList();
        }
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> copy = new HashMap<>();
            map.forEach((key, each) -> copy.put(key, plain(each)));
            return copy;
        }
        return value;
    }

    static Stream<Arguments> values() {
        return Stream.of(
                Arguments.of("bool", true),
                Arguments.of("bool", false),
                Arguments.of("byte", (byte) -128),
                Arguments.of("short", (short) -32768),
                Arguments.of("int", Integer.MIN_VALUE),
                Arguments.of("long", Long.MIN_VALUE),
                Arguments.of("long small", 1L),
                Arguments.of("float", 1.5f),
                Arguments.of("double", Math.PI),
                Arguments.of("decimal", new BigDecimal("123.45")),
                Arguments.of("string", "grün ☂ \uD83D\uDC30"),
                Arguments.of("empty string", ""),
                Arguments.of("timestamp", MOMENT),
                Arguments.of("table", Map.of("a", 1, "b", Map.of("c", "d"))),
                Arguments.of("empty table", Map.of()),
                Arguments.of("array", List.of(1, "two", 3.0, List.of(true), Map.of("x", 1L))),
                Arguments.of("empty array", List.of()));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("values")
    void headerValue(String kind, Object value) throws Exception {
        Object received = plain(roundTrip(Map.of(kind, value)).get(kind));
        assertEquals(value, received);
    }

    @Test
    void bytesHeader() throws Exception {
        byte[] value = {0, -1, 127, -128};
        Object received = roundTrip(Map.of("bytes", value)).get("bytes");
        assertArrayEquals(value, assertInstanceOf(byte[].class, received));
    }

    @Test
    void voidHeader() throws Exception {
        Map<String, Object> headers = new LinkedHashMap<>();
        headers.put("nothing", null);
        headers.put("list", Arrays.asList(1, null, 2));
        Map<String, Object> received = roundTrip(headers);
        assertEquals(headers, received);
    }

    @Test
    void manyHeaders() throws Exception {
        Map<String, Object> headers = new LinkedHashMap<>();
        for (int i = 0; i < 1000; i++) {
            headers.put("header-" + i, i);
        }
        assertEquals(headers, roundTrip(headers));
    }

    @Test
    void everyProperty() throws Exception {
        AMQP.BasicProperties sent = new AMQP.BasicProperties.Builder()
                .contentType("application/json")
                .contentEncoding("gzip")
                .headers(Map.of("a", 1))
                .deliveryMode(2)
                .priority(9)
                .correlationId("correlation")
                .replyTo("reply")
                .expiration("60000")
                .messageId("message")
                .timestamp(MOMENT)
                .type("type")
                .userId("guest")
                .appId("app")
                .clusterId("cluster")
                .build();
        AMQP.BasicProperties received = roundTrip(sent);
        assertEquals(sent, received);
        assertEquals(MOMENT, received.getTimestamp());
    }

    @Test
    void noProperty() throws Exception {
        AMQP.BasicProperties received = roundTrip(new AMQP.BasicProperties());
        assertNull(received.getHeaders());
        assertNull(received.getDeliveryMode());
        assertNull(received.getTimestamp());
        assertNull(received.getContentType());
    }

    @Test
    void otherUsersIdIsRefused() throws Exception {
        AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().userId("somebody else").build();
        channel.basicPublish("", queue(), properties, bytes("m"));
        String reply = assertChannelClosed(406, () -> channel.basicQos(0));
        assertEquals(
                "PRECONDITION_FAILED - user_id property set to 'somebody else' but authenticated user was 'guest'", reply);
    }
}
