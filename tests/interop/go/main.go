// A producer and consumer of the Go client that follow the protocol in ../README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	lock      sync.Mutex
	received  = map[string]int{}
	sentSoFar = map[string]int{}
)

func say(format string, values ...any) {
	fmt.Printf(">> "+format+"\n", values...)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
}

func onMessages(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	lock.Lock()
	defer lock.Unlock()
	for _, message := range messages {
		received[string(message.Body)]++
	}
	return consumer.ConsumeSuccess, nil
}

func send(to rocketmq.Producer, topic string, count int, pause time.Duration) {
	first, failed := sentSoFar[topic], 0
	for number := first; number < first+count; number++ {
		body := fmt.Sprintf("%s-%d", topic, number)
		result, err := to.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		if err == nil && result.Status != primitive.SendOK {
			err = fmt.Errorf("send status %d", result.Status)
		}
		if err != nil {
			failed++
			say("failure %s %d %s", topic, number, strings.ReplaceAll(err.Error(), "\n", " "))
		}
		time.Sleep(pause)
	}
	sentSoFar[topic] = first + count
	say("sent %s %d %d", topic, count-failed, failed)
}

func main() {
	rlog.SetLogLevel("warn")
	nameServers := strings.Split(os.Args[1], ";")
	group, topics := os.Args[2], os.Args[3:]

	from, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(nameServers),
		consumer.WithGroupName(group+"-consumer"),
		consumer.WithInstance(group+"-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	for _, topic := range topics {
		must(from.Subscribe(topic, consumer.MessageSelector{}, onMessages))
	}
	must(from.Start())
	to, err := rocketmq.NewProducer(
		producer.WithNameServer(nameServers),
		producer.WithGroupName(group+"-producer"),
		producer.WithInstanceName(group+"-producer"))
	must(err)
	must(to.Start())
	say("ready")

	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch words[0] {
		case "send":
			count, err := strconv.Atoi(words[2])
			must(err)
			pause, err := strconv.Atoi(words[3])
			must(err)
			send(to, words[1], count, time.Duration(pause)*time.Millisecond)
		case "received":
			lock.Lock()
			deliveries := 0
			for _, times := range received {
				deliveries += times
			}
			say("received %d %d", len(received), deliveries-len(received))
			lock.Unlock()
		default:
			must(fmt.Errorf("unknown command %q", input.Text()))
		}
	}
	os.Exit(0)
}
