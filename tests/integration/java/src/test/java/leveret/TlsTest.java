package leveret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.PossibleAuthenticationFailureException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Random;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Encrypted connections, with and without a certificate of the client's.
 *
 * <p>{@code broker.tls} is the port, {@code broker.keys} a folder with key stores: {@code authority.p12} with the
 * broker's authority, {@code client.p12} with a certificate that names the user {@code java-client}, {@code
 * nobody.p12} with one that names no user. Their password is {@code secret}.
 */
@EnabledIfSystemProperty(named = "broker.tls", matches = "[0-9]+")
class TlsTest {
    private static final char[] PASSWORD = "secret".toCharArray();

    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void messagesArriveWhole(String version) throws Exception {
        byte[] body = new byte[1_000_000];
        new Random(1).nextBytes(body);
        try (Connection connection = factory(version, null).newConnection();
                Channel channel = connection.createChannel()) {
            String queue = channel.queueDeclare().getQueue();
            channel.confirmSelect();
            channel.basicPublish("", queue, null, body);
            channel.waitForConfirmsOrDie(10_000);
            assertArrayEquals(body, channel.basicGet(queue, true).getBody());
        }
    }

    @Test
    void aClientWithoutTheAuthorityRefusesTheBroker() throws Exception {
        ConnectionFactory factory = factory("TLSv1.3", null);
        SSLContext trusting = SSLContext.getInstance("TLSv1.3");
        trusting.init(null, null, null);
        factory.useSslProtocol(trusting);
        assertThrows(SSLHandshakeException.class, factory::newConnection);
    }

    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void aCertificateLogsItsUserIn(String version) throws Exception {
        ConnectionFactory factory = factory(version, "client.p12");
        factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        try (Connection connection = factory.newConnection();
                Channel channel = connection.createChannel()) {
            String queue = channel.queueDeclare().getQueue();
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().userId("java-client").build();
            channel.basicPublish("", queue, properties, new byte[0]);
            GetResponse got = channel.basicGet(queue, true);
            assertEquals("java-client", got.getProps().getUserId());
        }
    }

    @Test
    void aCertificateOfNobodyDoesNot() throws Exception {
        ConnectionFactory factory = factory("TLSv1.3", "nobody.p12");
        factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        IOException failure = assertThrows(IOException.class, factory::newConnection);
        assertTrue(
                failure instanceof AuthenticationFailureException
                        || failure instanceof PossibleAuthenticationFailureException,
                failure.toString());
    }

    @Test
    void withoutACertificateThereIsNoSuchMechanism() throws Exception {
        ConnectionFactory factory = factory("TLSv1.3", null);
        factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        assertThrows(IOException.class, factory::newConnection);
    }

    /** The broker, over TLS; its host name is verified. */
    private static ConnectionFactory factory(String version, String keys) throws Exception {
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store("authority.p12"));
        KeyManager[] own = null;
        if (keys != null) {
            KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            factory.init(store(keys), PASSWORD);
            own = factory.getKeyManagers();
        }
        SSLContext context = SSLContext.getInstance(version);
        context.init(own, trust.getTrustManagers(), null);
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
