package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// headerTimeout bounds how long a local client may take to send a request's
// header.
const headerTimeout = 10 * time.Second

// Serve answers local clients of e on l until l is closed; it returns when
// every request has been answered or given up. Stop is called by a shutdown
// request.
func Serve(ctx context.Context, l net.Listener, e Engine, stop func(DrainRequest)) error {
	g := &gate{next: Handler(e, stop)}
	defer g.close()
	s := &http.Server{Handler: g, ReadHeaderTimeout: headerTimeout}
	end := context.AfterFunc(ctx, func() { s.Close() }) // cancels what is in progress
	defer end()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// gate counts the requests in progress, so that the engine isn't closed under
// them.
type gate struct {
	next   http.Handler
	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		fail(w, http.StatusServiceUnavailable, errors.New("the node is closing"))
		return
	}
	g.busy.Add(1)
	g.mu.Unlock()
	defer g.busy.Done()
	g.next.ServeHTTP(w, r)
}

// close waits for the requests in progress and lets no other in.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.busy.Wait()
}

// InProcess returns a client of e that needs no socket. Closing it ends what
// its requests started.
func InProcess(e Engine) *Client {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = Serve(ctx, l, e, func(DrainRequest) {}) // the listener has no other error than being closed
	}()
	c := NewClient(l.dial)
	c.close = func() {
		cancel()
		l.Close()
		<-served
	}
	return c
}

// pipeListener accepts the other ends of the pipes that dial makes.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "in-process" }
