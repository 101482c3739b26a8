import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin as a process that stays: each line of standard input is one command with its
 * arguments separated by tabs, answered by what the command printed and a line with the
 * end mark. Starting a JVM for each command would cost several seconds every time.
 */
public class Admin {
    private static final String END_MARK = "\u0004";

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setErr(System.out); // stack traces are part of what the operator sees
        System.out.println(END_MARK);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            commands().clear(); // main0 fills the list at every call
            System.clearProperty("rocketmq.namesrv.addr");
            MQAdminStartup.main0(line.split("\t"), null);
            System.out.println(END_MARK);
        }
        System.exit(0); // clients leave threads behind
    }

    private static List<?> commands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) { // 4.x and 5.x name it differently
                field.setAccessible(true);
                return (List<?>) field.get(null);
            }
        }
        throw new IllegalStateException("mqadmin keeps its commands elsewhere");
    }
}
