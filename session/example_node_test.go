package session_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/session"
	"github.com/starling-swarm/starling/swarm"
)

// A session with a node of this process, which serves a model by itself: what steps reuse, and an error that a program can act on.
func Example_ownNode() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "starling-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	info, err := swarm.CreateSwarm(dir, "example", true, nil)
	if err != nil {
		log.Fatal(err)
	}
	n, err := node.Start(ctx, node.Config{DataDir: dir, Swarm: info, Tracker: true, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Engine: runtime.Options{Threads: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	client := control.InProcess(n.Control())
	defer client.Close()
	path := filepath.Join(dir, "tiny.gguf")
	if err := (runtimetest.TinyModel{Layers: 4}).Write(path); err != nil { // or any GGUF file
		log.Fatal(err)
	}
	published, err := client.Publish(ctx, control.PublishRequest{Path: path}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Serve(ctx, control.ServeRequest{Model: published.ID}, nil); err != nil {
		log.Fatal(err)
	}

	s, err := session.Open(ctx, client, session.Options{Model: "tiny"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.AppendText(ctx, "The quick brown fox jumps over the lazy dog"); err != nil {
		log.Fatal(err)
	}
	for turn := range 2 {
		for _, err := range s.Generate(ctx, session.Request{MaxNew: 8, Stop: []string{"\n"}}) {
			if err != nil {
				log.Fatal(err)
			}
		}
		a := s.Account()
		fmt.Printf("turn %d: %d tokens before, %d of them from a cache\n", turn+1, len(a.PromptTokens), a.Reused)
	}
	_, err = session.Open(ctx, client, session.Options{Model: "tinny"})
	var e *session.Error
	if errors.As(err, &e) && e.Kind == session.UnknownModel {
		fmt.Println("did you mean", e.Near)
	}
	// Output:
	// turn 1: 43 tokens before, 0 of them from a cache
	// turn 2: 51 tokens before, 50 of them from a cache
	// did you mean [tiny]
}
