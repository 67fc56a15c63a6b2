package main

import (
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	devSink       = "kafka" // name of the sink in the config of `tocsin dev --kafka`
	devPartitions = 4
	devCommands   = "orders.commands" // topic for an entrance, as docs/operations.md has it
)

// devBroker is the broker of `tocsin dev --kafka`; the zero value is none.
type devBroker struct {
	beside *devcluster.Broker
	server *broker.Broker
}

// broker starts one if --kafka asks for it.
func (f devFlags) broker(ctx context.Context) (b devBroker, err error) {
	if !f.kafka {
		return b, nil
	}
	return startBroker(ctx, f.kafkaPort, devcluster.OrderNotify.Name(), devCommands, devCommands+".dlt")
}

// startBroker starts one with topics.
func startBroker(ctx context.Context, port int, topics ...string) (b devBroker, err error) {
	partitions := map[string]int32{}
	for _, topic := range topics {
		partitions[topic] = devPartitions
	}
	b.server, err = broker.Start(ctx, broker.Config{Port: port, Topics: partitions})
	if err != nil {
		return devBroker{}, err
	}
	maker, err := tocsinkafka.New(sink.Config{Name: devSink, Addresses: []string{b.server.Address()}, Topics: []string{"*"}, Cluster: devcluster.ClusterID})
	if err != nil {
		return devBroker{}, errors.Join(err, b.stop())
	}
	b.beside = &devcluster.Broker{Name: devSink, Kind: "kafka", Address: b.server.Address(), Maker: maker}
	return b, nil
}

// stop ends the broker, and its connections before. The nodes have ended.
func (b devBroker) stop() error {
	if b.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	if b.beside != nil {
		err = b.beside.Maker.Close(ctx)
	}
	return errors.Join(err, b.server.Stop(ctx))
}
