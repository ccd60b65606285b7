package leveret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * Sends commands to the test that started the broker, at the address of system property {@code broker.control}: one line with a command
 * a connection, answered by one line, {@code ok} or what went wrong.
 */
final class BrokerControl {
    private static final int ANSWER_TIMEOUT_MS = 30_000;

    private BrokerControl() {}

    /** Stops the broker and starts it on the same port; returns when it serves. */
    static void restart() throws IOException {
        String address = System.getProperty("broker.control");
        assertNotNull(address, "broker.control is not set");
        int colon = address.lastIndexOf(':');
        try (Socket socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)))) {
            socket.setSoTimeout(ANSWER_TIMEOUT_MS);
            OutputStream out = socket.getOutputStream();
            out.write("restart\n".getBytes(StandardCharsets.US_ASCII));
            out.flush();
            BufferedReader in =
                    new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            assertEquals("ok", in.readLine());
        }
    }
}
