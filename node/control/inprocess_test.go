package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// lingering is an engine whose prompt takes a while to notice that it is over.
type lingering struct {
	Engine
	began, ended atomic.Bool
}

func (e *lingering) Run(ctx context.Context, _ RunRequest, _ func(Event) error) (*Account, error) {
	e.began.Store(true)
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond)
	e.ended.Store(true)
	return nil, ctx.Err()
}

// After Close nothing uses the engine: it may be closed itself.
func TestCloseWaitsForRequests(t *testing.T) {
	e := &lingering{}
	c := InProcess(e)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Run(context.Background(), RunRequest{}, nil)
		failed <- err
	}()
	for end := time.Now().Add(patience); !e.began.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request did not arrive")
		}
	}
	c.Close()
	if !e.ended.Load() {
		t.Error("a request goes on after Close")
	}
	if err := <-failed; err == nil {
		t.Error("the request of a closed client succeeded")
	}
}
