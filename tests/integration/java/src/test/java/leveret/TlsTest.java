package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import com.rabbitmq.client.GetResponse;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Random;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Encrypted connections with a certificate of the client's.
 *
 * <p>{@code broker.tls} is the port, {@code broker.keys} a folder with key stores: {@code authority.p12} with the
 * broker's authority, {@code client.p12} with a certificate that names the user {@code java-client}. Their password is
 * {@code secret}.
 */
@EnabledIfSystemProperty(named = "broker.tls", matches = "[0-9]+")
class TlsTest {
    private static final char[] PASSWORD = "secret".toCharArray();

    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void aCertificateLogsItsUserInAndMessagesArriveWhole(String version) throws Exception {
        ConnectionFactory factory = factory(version);
        factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        byte[] body = new byte[1_000_000];
        new Random(1).nextBytes(body);
        try (Connection connection = factory.newConnection();
                Channel channel = connection.createChannel()) {
            String queue = channel.queueDeclare().getQueue();
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().userId("java-client").build();
            channel.basicPublish("", queue, properties, body);
            GetResponse got = channel.basicGet(queue, true);
            assertEquals("java-client", got.getProps().getUserId());
            assertArrayEquals(body, got.getBody());
        }
    }

    /** The broker, over TLS; its host name is verified. */
    private static ConnectionFactory factory(String version) throws Exception {
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store("authority.p12"));
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        own.init(store("client.p12"), PASSWORD);
        SSLContext context = SSLContext.getInstance(version);
        context.init(own.getKeyManagers(), trust.getTrustManagers(), null);
        ConnectionFactory factory = BrokerTestCase.factory();
        factory.setPort(Integer.parseInt(System.getProperty("broker.tls")));
        factory.useSslProtocol(context);
        factory.enableHostnameVerification();
        return factory;
    }

    private static KeyStore store(String name) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream file = Files.newInputStream(Path.of(System.getProperty("broker.keys"), name))) {
            store.load(file, PASSWORD);
        }
        return store;
    }
}
