package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
)

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// gatewayTo starts a swarm with a node for each range of a model's layers, and a gateway to it.
func gatewayTo(t *testing.T, model string, ranges ...control.Layers) *httptest.Server {
	t.Helper()
	info, err := swarm.CreateSwarm(t.TempDir(), "test", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap []string
	start := func(change func(*node.Config)) (*node.Node, *control.Client) {
		t.Helper()
		cfg := node.Config{DataDir: t.TempDir(), Swarm: info, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Bootstrap: bootstrap,
			Engine: runtime.Options{Threads: 1, MaxKVBytes: 64 << 20}, Silence: 30 * time.Second} // where nobody is lost, nobody may seem to be
		change(&cfg)
		n, err := node.Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := control.InProcess(n.Control())
		t.Cleanup(func() {
			c.Close()
			n.Close()
		})
		return n, c
	}
	tracker, c := start(func(c *node.Config) { c.Tracker = true })
	bootstrap = tracker.Addrs()
	m, err := c.Publish(t.Context(), control.PublishRequest{Path: model}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ranges {
		_, c := start(func(*node.Config) {})
		eventually(t, "the model's offer", func() bool {
			_, err := c.Serve(t.Context(), control.ServeRequest{Model: m.ID, Layers: &ranges[i]}, nil)
			return err == nil
		})
	}
	_, client := start(func(c *node.Config) { c.Client = true })
	eventually(t, "all offers", func() bool {
		peers, err := client.Peers(t.Context())
		return err == nil && len(peers) == len(ranges)+1 // the tracker holds it, too
	})
	s := httptest.NewServer(New(Config{Client: client, Wait: patience}))
	t.Cleanup(s.Close)
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// The same request gives the same text, whole or streamed, by one peer or by three, alone or beside fifteen others.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := (runtimetest.TinyModel{Arch: "llama", Layers: 4}).Write(model); err != nil {
		t.Fatal(err)
	}
	one, three := gatewayTo(t, model, control.Layers{First: 0, Last: 3}), gatewayTo(t, model, control.Layers{First: 0, Last: 0}, control.Layers{First: 1, Last: 2}, control.Layers{First: 3, Last: 3})
	text := func(s *httptest.Server, body string, stream bool) (all string) {
		status, got, _ := ask(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":"abcdefghijklmnopqrstuvwxyz","max_tokens":12,"stream":%v,%s}`, stream, body))
		list := []string{got}
		if stream {
			list = events(t, got)
			list = list[:len(list)-1]
		}
		for _, ev := range list {
			var r completionReply
			if err := json.Unmarshal([]byte(ev), &r); err != nil || status != 200 || len(r.Choices) != 1 {
				t.Errorf("status %d: %s", status, got)
				return ""
			}
			all += r.Choices[0].Text
		}
		return all
	}
	for _, body := range []string{`"temperature":0`, `"temperature":0.9,"seed":7`, `"seed":8,"top_p":0.9`} {
		want := text(one, body, false)
		if want == "" {
			t.Errorf("%s: no text", body)
		}
		var all sync.WaitGroup
		for i := range 16 {
			for _, s := range []*httptest.Server{one, three} {
				all.Go(func() {
					if got := text(s, body, i%2 == 0); got != want {
						t.Errorf("%s, streamed %v: %q, want %q", body, i%2 == 0, got, want)
					}
				})
			}
		}
		all.Wait()
	}
}
