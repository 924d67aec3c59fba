package swarm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	childEnv     = "STARLING_SWARM_TEST_CHILD"
	childListen  = "STARLING_SWARM_TEST_LISTEN" // addresses
	childTTL     = 4 * time.Second
	childPublish = time.Second
)

// childNode is a node in a process of its own, which a test can have sleep: it prints its address and offers a model. args are its data
// folder, its swarm's, and its bootstrap. It wakes when a line comes in, and ends with its input.
func childNode(args []string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	id, err := LoadIdentity(args[0])
	fail(err)
	list, err := OpenSwarms(args[1]).List()
	fail(err)
	h, err := Start(context.Background(), Config{Identity: id, Dir: args[0], Swarm: list[0], Listen: strings.Fields(os.Getenv(childListen)), Bootstrap: args[2:], publishEvery: childPublish})
	fail(err)
	h.SetOffers([]Offer{{Model: [32]byte{1}, ModelName: "sleepy", Last: 3, TTL: childTTL, Context: 64}})
	fmt.Println(h.ID())
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err == io.EOF {
			break
		}
		h.Wake(context.Background(), 0)
		fmt.Println("awake")
	}
	h.Close()
	os.Exit(0)
}
