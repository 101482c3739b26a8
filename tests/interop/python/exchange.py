"""A producer and consumer of the C++ client library, through its Python binding.

They follow the protocol in ../README.md.
"""
import collections
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer, SendStatus

received = collections.Counter()
received_lock = threading.Lock()
sent_so_far = collections.Counter()


def say(line):
    print(">> " + line, flush=True)


def on_message(message):
    with received_lock:
        received[message.body] += 1


def send(producer, topic, count, pause_ms):
    first = sent_so_far[topic]
    failed = 0
    for number in range(first, first + count):
        message = Message(topic)
        message.set_body("%s-%d" % (topic, number))
        try:
            status = producer.send_sync(message).status
            if status != SendStatus.OK:
                raise RuntimeError("send status %s" % status)
        except Exception as error:
            failed += 1
            say("failure %s %d %s" % (topic, number, str(error).replace("\n", " ")))
        time.sleep(pause_ms / 1000.0)
    sent_so_far[topic] += count
    say("sent %s %d %d" % (topic, count - failed, failed))


def main(name_servers, group, *topics):
    consumer = PushConsumer(group + "-consumer")
    consumer.set_namesrv_addr(name_servers)
    consumer.set_instance_name(group + "-consumer")
    for topic in topics:
        consumer.subscribe(topic, on_message)
    consumer.start()
    producer = Producer(group + "-producer")
    producer.set_namesrv_addr(name_servers)
    producer.start()
    say("ready")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "send":
            send(producer, words[1], int(words[2]), int(words[3]))
        elif words[0] == "received":
            with received_lock:
                distinct, deliveries = len(received), sum(received.values())
            say("received %d %d" % (distinct, deliveries - distinct))
        else:
            raise ValueError(line)
    producer.shutdown()
    consumer.shutdown()


main(*sys.argv[1:])
