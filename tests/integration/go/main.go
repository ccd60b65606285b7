// Shovels by rabbit-hole, the Go client of RabbitMQ's HTTP API: sets, lists, refuses and deletes one in a virtual host.
//
// Arguments: the URL of the API, user, password, and the virtual host. Prints a line for each step.
package main

import (
	"fmt"
	"os"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v3"
)

func main() {
	client, err := rabbithole.NewClient(os.Args[1], os.Args[2], os.Args[3])
	check(err)
	vhost := os.Args[4]
	uri := rabbithole.URISet{"amqp:///" + vhost}
	definition := rabbithole.ShovelDefinition{
		SourceURI: uri, SourceQueue: "a", DestinationURI: uri, DestinationQueue: "b",
		AckMode: "on-confirm", SourcePrefetchCount: 10, SourceDeleteAfter: "never",
		DestinationAddForwardHeaders: true, ReconnectDelay: 1,
	}
	answer, err := client.DeclareShovel(vhost, "x", definition)
	check(err)
	fmt.Println("declared", answer.Status)
	answer, err = client.DeclareShovel(vhost, "x", definition)
	check(err)
	fmt.Println("declared again", answer.Status)

	found, err := client.GetShovel(vhost, "x")
	check(err)
	value := found.Definition
	fmt.Println(
		found.Component, found.Name, value.SourceURI, value.SourceQueue, value.DestinationURI, value.DestinationQueue,
		value.AckMode, value.SourcePrefetchCount, value.SourceDeleteAfter, value.DestinationAddForwardHeaders,
		value.ReconnectDelay,
	)
	listed, err := client.ListShovelsIn(vhost)
	check(err)
	fmt.Println("listed", len(listed), listed[0].Name)

	status := running(client, vhost)
	fmt.Println("status", status.Name, status.Vhost == vhost, status.Type, status.State)

	_, err = client.DeclareShovel(vhost, "wrong", rabbithole.ShovelDefinition{SourceURI: uri, DestinationURI: uri})
	fmt.Println("refused", err)
	answer, err = client.DeleteShovel(vhost, "x")
	check(err)
	fmt.Println("deleted", answer.Status)
	answer, err = client.DeleteShovel(vhost, "x")
	check(err)
	fmt.Println("deleted again", answer.Status)
	_, err = client.GetShovel(vhost, "x")
	fmt.Println("gone", err)
}

// running waits until the only shovel of a virtual host runs, and returns its status.
func running(client *rabbithole.Client, vhost string) rabbithole.ShovelStatus {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found, err := client.ListShovelStatus(vhost)
		check(err)
		if len(found) == 1 && found[0].State == "running" {
			return found[0]
		}
		if time.Now().After(deadline) {
			check(fmt.Errorf("not running: %+v", found))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}
