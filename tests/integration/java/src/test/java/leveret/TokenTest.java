package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.impl.DefaultCredentialsRefreshService;
import com.rabbitmq.client.impl.DefaultCredentialsRefreshService.DefaultCredentialsRefreshServiceBuilder;
import com.rabbitmq.client.impl.RefreshProtectedCredentialsProvider;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/**
 * A client whose password is a token, which its refresh service renews by {@code connection.update-secret}.
 *
 * <p>{@code broker.tokens} is the URL of a broker that takes tokens, {@code broker.issuer} where a new one is for each
 * GET; they are valid for 20 s.
 */
@EnabledIfSystemProperty(named = "broker.tokens", matches = ".+")
class TokenTest {
    private static final Duration VALID = Duration.ofSeconds(20);

    @Test
    void aConnectionOutlivesItsFirstTokens() throws Exception {
        Tokens tokens = new Tokens();
        DefaultCredentialsRefreshService service = new DefaultCredentialsRefreshServiceBuilder()
                .refreshDelayStrategy(DefaultCredentialsRefreshService.ratioRefreshDelayStrategy(0.3))
                .build();
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getProperty("broker.tokens"));
        factory.setAutomaticRecoveryEnabled(false);
        factory.setCredentialsProvider(tokens);
        factory.setCredentialsRefreshService(service);
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            String queue = channel.queueDeclare().getQueue();
            // Twice as long as the first one is valid: without a new one the broker closes the connection.
            Instant end = Instant.now().plus(VALID.multipliedBy(2));
            int count = 0;
            while (Instant.now().isBefore(end)) {
                byte[] body = Integer.toString(count++).getBytes(StandardCharsets.UTF_8);
                channel.basicPublish("", queue, null, body);
                assertEquals(new String(body, StandardCharsets.UTF_8), got(channel, queue));
                Thread.sleep(50);
            }
            assertTrue(tokens.issued.get() >= 3, () -> tokens.issued + " tokens");
        } finally {
            service.close();
        }
    }

    private static String got(Channel channel, String queue) throws Exception {
        return new String(channel.basicGet(queue, true).getBody(), StandardCharsets.UTF_8);
    }

    /** A token and when it ends. */
    private record Token(String text, Instant end) {}

    /** Fetches tokens. */
    private static final class Tokens extends RefreshProtectedCredentialsProvider<Token> {
        final AtomicInteger issued = new AtomicInteger();

        @Override
        protected Token retrieveToken() {
            try (InputStream answer = URI.create(System.getProperty("broker.issuer")).toURL().openStream()) {
                Instant asked = Instant.now();
                issued.incrementAndGet();
                return new Token(new String(answer.readAllBytes(), StandardCharsets.UTF_8), asked.plus(VALID));
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override
        protected String usernameFromToken(Token token) {
            return "";
        }

        @Override
        protected String passwordFromToken(Token token) {
            return token.text();
        }

        @Override
        protected Duration timeBeforeExpiration(Token token) {
            return Duration.between(Instant.now(), token.end());
        }
    }
}
