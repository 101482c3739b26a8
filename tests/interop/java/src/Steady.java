import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.RemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A Java producer that sends by the clock, with the client's own settings, and tells of each message and of each
 * route query; the protocol is in ../../README.md.
 */
public class Steady {
    private static final int ROUTE_QUERY = 105;
    /** The client itself gives up after 3 s. */
    private static final long UNANSWERED_MILLIS = 3500;
    private static final int THREADS = 256;
    private static final int TRIES = 30;

    private static final ThreadLocal<StringBuilder> picks = new ThreadLocal<>();
    private static final Map<Integer, Query> queries = new ConcurrentHashMap<>();

    private static final class Query {
        final long started = System.currentTimeMillis();
        final String topic;
        final String server;

        Query(String topic, String server) {
            this.topic = topic;
            this.server = server;
        }
    }

    public static void main(String[] args) throws Exception {
        String nameServers = args[0];
        String group = args[1];
        int rate = Integer.parseInt(args[2]);
        String fixed = args[3];
        int freshSeconds = Integer.parseInt(args[4]); // 0: every message goes to the fixed topic
        int freshEvery = Integer.parseInt(args[5]);

        DefaultMQProducer producer = start(nameServers, group, fixed, System.getProperty("steady.server"));
        ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
        ExecutorService senders = Executors.newFixedThreadPool(THREADS);
        AtomicLong number = new AtomicLong();
        long begin = System.nanoTime();
        clock.scheduleAtFixedRate(() -> {
            long due = System.currentTimeMillis();
            long index = number.getAndIncrement();
            long elapsed = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin);
            boolean fresh = freshSeconds > 0 && index % freshEvery == freshEvery - 1;
            String topic = fresh ? fixed + "-" + elapsed / freshSeconds : fixed;
            senders.execute(() -> send(producer, topic, index, due));
        }, 0, 1_000_000 / rate, TimeUnit.MICROSECONDS);
        clock.scheduleAtFixedRate(Steady::tellUnanswered, 100, 100, TimeUnit.MILLISECONDS);

        while (System.in.read() != -1) {
            // Its end is the sign to stop.
        }
        clock.shutdown();
        clock.awaitTermination(1, TimeUnit.SECONDS);
        senders.shutdown();
        senders.awaitTermination(30, TimeUnit.SECONDS);
        tellUnanswered();
        say("done " + number.get());
        System.exit(0);
    }

    /** Producers start at a random name server: takes new ones until one starts where it should. */
    private static DefaultMQProducer start(String nameServers, String group, String topic, String wanted)
            throws Exception {
        for (int attempt = 0; attempt < TRIES; attempt++) {
            DefaultMQProducer producer = new DefaultMQProducer(group, hook());
            producer.setNamesrvAddr(nameServers);
            producer.setInstanceName(group + "-" + attempt);
            producer.getDefaultMQProducerImpl().registerSendMessageHook(pickHook());
            producer.start();
            warmUp(producer, topic);
            String server = server(producer);
            if (wanted == null || wanted.equals(server)) {
                say("ready " + server);
                return producer;
            }
            producer.shutdown();
        }
        throw new IllegalStateException("no producer started at " + wanted);
    }

    /** One message has to pass before the measurement starts. */
    private static void warmUp(DefaultMQProducer producer, String topic) throws Exception {
        for (int attempt = 1;; attempt++) {
            try {
                picks.set(new StringBuilder());
                producer.send(new Message(topic, "warm-up".getBytes(StandardCharsets.UTF_8)));
                return;
            } catch (Exception error) {
                if (attempt == TRIES) {
                    throw error;
                }
                Thread.sleep(1000);
            }
        }
    }

    private static void send(DefaultMQProducer producer, String topic, long index, long due) {
        StringBuilder picked = new StringBuilder();
        picks.set(picked);
        String result;
        try {
            byte[] body = (topic + "-" + index).getBytes(StandardCharsets.UTF_8);
            SendStatus status = producer.send(new Message(topic, body)).getSendStatus();
            result = status == SendStatus.SEND_OK ? "ok" : "failed send status " + status;
        } catch (Exception error) {
            Throwable cause = error.getCause();
            result = "failed " + String.valueOf(cause == null ? error : cause).replace('\n', ' ');
        }
        long took = System.currentTimeMillis() - due;
        say("send " + due + " " + topic + " " + took + " " + (picked.length() == 0 ? "-" : picked) + " " + result);
    }

    private static SendMessageHook pickHook() {
        return new SendMessageHook() {
            @Override
            public String hookName() {
                return "picks";
            }

            @Override
            public void sendMessageBefore(SendMessageContext context) {
                StringBuilder picked = picks.get();
                if (picked != null) {
                    picked.append(picked.length() == 0 ? "" : ",").append(context.getMq().getBrokerName())
                        .append('@').append(System.currentTimeMillis());
                }
            }

            @Override
            public void sendMessageAfter(SendMessageContext context) {
            }
        };
    }

    private static RPCHook hook() {
        return new RPCHook() {
            @Override
            public void doBeforeRequest(String remote, RemotingCommand request) {
                if (request.getCode() == ROUTE_QUERY) {
                    request.makeCustomHeaderToNet();
                    String topic = request.getExtFields() == null ? "?" : request.getExtFields().get("topic");
                    queries.put(request.getOpaque(), new Query(topic, remote));
                }
            }

            @Override
            public void doAfterResponse(String remote, RemotingCommand request, RemotingCommand response) {
                Query query = request.getCode() == ROUTE_QUERY ? queries.remove(request.getOpaque()) : null;
                if (query != null) {
                    long took = System.currentTimeMillis() - query.started;
                    say("query " + query.started + " " + query.topic + " " + query.server + " " + took + " "
                        + (response == null ? "none" : response.getCode()));
                }
            }
        };
    }

    private static void tellUnanswered() {
        long now = System.currentTimeMillis();
        queries.entrySet().removeIf(entry -> {
            Query query = entry.getValue();
            boolean late = now - query.started >= UNANSWERED_MILLIS;
            if (late) {
                say("query " + query.started + " " + query.topic + " " + query.server + " - unanswered");
            }
            return late;
        });
    }

    /** The name server that the client uses now; it has no method that tells. */
    private static String server(DefaultMQProducer producer) throws Exception {
        RemotingClient client =
            producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().getRemotingClient();
        Field field = client.getClass().getDeclaredField("namesrvAddrChoosed");
        field.setAccessible(true);
        return String.valueOf(((AtomicReference<?>) field.get(client)).get());
    }

    private static synchronized void say(String line) {
        System.out.println(">> " + line);
    }
}
