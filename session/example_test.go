package session_test

import (
	"context"
	"fmt"
	"log"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/session"
)

// A session with the daemon of a data folder: an answer, another one to the same question, and what the model made of both.
func Example() {
	ctx := context.Background()
	client, err := control.Dial(ctx, "data") // the folder of "starling serve --data data"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	s, err := session.Open(ctx, client, session.Options{Model: "SmolLM2"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := s.AppendText(ctx, "The capital of France is"); err != nil {
		log.Fatal(err)
	}
	if err := s.Prefill(ctx); err != nil { // not needed, but now the first token comes sooner
		log.Fatal(err)
	}
	other := s.Fork()
	for token, err := range s.Generate(ctx, session.Request{MaxNew: 16}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	for token, err := range other.Generate(ctx, session.Request{MaxNew: 16, Sampling: session.Sampling{Temperature: 0.8, Seed: 7}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}

	last := s.Model().NumLayers
	hidden, err := s.Hidden(ctx, []int{0, last / 2, last}, 0, s.Len()) // [boundary][position × width]
	if err != nil {
		log.Fatal(err)
	}
	logits, err := s.Logits(ctx, s.Len()-1, s.Len())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(hidden), len(hidden[0])/s.Model().Width, len(logits))
}
