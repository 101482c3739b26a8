import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/**
 * Runs many NameServers, one after the other or side by side, in one JVM, each through the start-up
 * code of its own main class: a scenario gets a fresh server in a tenth of a second instead of two.
 *
 * <p>Commands, one a line on standard input: {@code start FILE} answers {@code started ID PORT BANNER},
 * {@code stop ID} answers {@code stopped ID}. A server that cannot start ends the process, as its main
 * class wants it.
 */
public final class NamesrvHost {
    private static final PrintStream ANSWERS = System.out;
    private static final Map<Integer, NamesrvController> RUNNING = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int next = 1;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.startsWith("start ")) {
                start(next++, line.substring("start ".length()));
            } else if (line.startsWith("stop ")) {
                stop(Integer.parseInt(line.substring("stop ".length())));
            } else {
                ANSWERS.println("unknown command " + line);
            }
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(int id, String file) {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        NamesrvController controller = NamesrvStartup.main0(new String[] {"-c", file});
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        String[] lines = said.toString(StandardCharsets.UTF_8).strip().split("\\R");
        RUNNING.put(id, controller);
        int port = controller.getNettyServerConfig().getListenPort();
        ANSWERS.println("started " + id + " " + port + " " + lines[lines.length - 1]);
    }

    private static void stop(int id) {
        NamesrvController controller = RUNNING.remove(id);
        if (controller != null) {
            // Takes seconds; nobody waits for a server that has done its part.
            new Thread(controller::shutdown, "stop-" + id).start();
        }
        ANSWERS.println("stopped " + id);
    }

    private NamesrvHost() {
    }
}
