import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A Java producer and consumer that follow the protocol in ../../README.md. */
public class Exchange {
    /** Instead of 30 s, so that many queries meet a dead or an empty name server. */
    private static final int ROUTE_PERIOD_MILLIS = 2000;
    private static final Map<String, AtomicInteger> received = new ConcurrentHashMap<>();
    private static final Map<String, Integer> sentSoFar = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        String nameServers = args[0];
        String group = args[1];
        String[] topics = Arrays.copyOfRange(args, 2, args.length);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group + "-consumer");
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(ROUTE_PERIOD_MILLIS);
        consumer.setInstanceName(group + "-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                received.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        DefaultMQProducer producer = new DefaultMQProducer(group + "-producer");
        producer.setNamesrvAddr(nameServers);
        producer.setPollNameServerInterval(ROUTE_PERIOD_MILLIS);
        producer.setInstanceName(group + "-producer");
        producer.start();
        say("ready");

        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("send")) {
                send(producer, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            } else if (words[0].equals("received")) {
                int deliveries = received.values().stream().mapToInt(AtomicInteger::get).sum();
                say("received " + received.size() + " " + (deliveries - received.size()));
            } else {
                throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int count, long pauseMillis)
            throws InterruptedException {
        int first = sentSoFar.getOrDefault(topic, 0);
        int failed = 0;
        for (int number = first; number < first + count; number++) {
            byte[] body = (topic + "-" + number).getBytes(StandardCharsets.UTF_8);
            try {
                SendStatus status = producer.send(new Message(topic, body)).getSendStatus();
                if (status != SendStatus.SEND_OK) {
                    throw new IllegalStateException("send status " + status);
                }
            } catch (Exception error) {
                failed++;
                say("failure " + topic + " " + number + " " + error.toString().replace('\n', ' '));
            }
            Thread.sleep(pauseMillis);
        }
        sentSoFar.put(topic, first + count);
        say("sent " + topic + " " + (count - failed) + " " + failed);
    }

    private static void say(String line) {
        System.out.println(">> " + line);
    }
}
