package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"

	"github.com/starling-swarm/starling/swarm/wire"
)

// In a private swarm every transport is wrapped: a connection whose security
// handshake is done is not handed to libp2p before both sides have shown their
// certificates. So no protocol at all, identify and ping included, exists for
// a stranger. What it gets is one stream of /starling/join/2, the first on the
// connection and opened by the side that dialled:
//
//	dialler                 listener
//	Hello (certificate)  →
//	                     ←  Welcome (certificate) or JoinRefused
//
// or, to become a member,
//
//	Redeem (secret)      →
//	                     ←  Admitted (certificate, lists) or JoinRefused
//
// after which the connection closes. The dialler goes first, so a stranger who
// dials learns nothing about the swarm. Why it is cut off is for the listener's
// log; the stranger hears a sentence that is always the same. Only a peer to
// which an owner once gave a certificate, for this swarm and its key, is told
// that it ran out or was revoked.

const (
	joinProtocol  = "/starling/join/2"
	admitTimeout  = 2 * time.Second  // for the whole exchange
	redeemTimeout = 10 * time.Second // as seen by the newcomer, who trusts the issuer
	maxAdmitting  = 64               // exchanges at once, per listening address
)

// admission runs the exchange over a connection that nothing else uses yet. An
// error means that the connection must be closed.
type admission func(ctx context.Context, conn transport.CapableConn, dialled bool) error

// gatedTransport lets a connection pass only after its admission.
type gatedTransport struct {
	transport.Transport
	admit admission
}

// Dial implements transport.Transport.
func (t *gatedTransport) Dial(ctx context.Context, raddr ma.Multiaddr, p peer.ID) (transport.CapableConn, error) {
	conn, err := t.Transport.Dial(ctx, raddr, p)
	if err != nil {
		return nil, err
	}
	// Where a hole is punched both sides dial at once, and one of them has agreed to be the listener.
	punching, dialler, _ := network.GetSimultaneousConnect(ctx)
	if err := t.admit(ctx, conn, !punching || dialler); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Listen implements transport.Transport.
func (t *gatedTransport) Listen(laddr ma.Multiaddr) (transport.Listener, error) {
	inner, err := t.Transport.Listen(laddr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &gatedListener{Listener: inner, admit: t.admit, ctx: ctx, cancel: cancel,
		ready: make(chan transport.CapableConn), slots: make(chan struct{}, maxAdmitting)}
	l.wg.Add(1)
	go l.run()
	return l, nil
}

// gatedListener runs the exchanges of incoming connections beside each other,
// so that a stranger who says nothing keeps nobody waiting.
type gatedListener struct {
	transport.Listener
	admit  admission
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ready  chan transport.CapableConn // closed by run
	slots  chan struct{}              // one token per exchange in progress
	wg     sync.WaitGroup
	err    error // why run ended; written before ready is closed
}

func (l *gatedListener) run() {
	defer l.wg.Done()
	var exchanges sync.WaitGroup
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			l.cancel()
			exchanges.Wait()
			close(l.ready)
			return
		}
		select {
		case l.slots <- struct{}{}:
		default:
			conn.CloseWithError(network.ConnRateLimited)
			continue
		}
		exchanges.Add(1)
		go func() {
			defer exchanges.Done()
			err := l.admit(l.ctx, conn, false)
			<-l.slots
			if err != nil {
				conn.CloseWithError(network.ConnGated)
				return
			}
			select {
			case l.ready <- conn:
			case <-l.ctx.Done():
				conn.Close()
			}
		}()
	}
}

// Accept implements transport.Listener.
func (l *gatedListener) Accept() (transport.CapableConn, error) {
	conn, ok := <-l.ready
	if !ok {
		return nil, l.err
	}
	return conn, nil
}

// Close implements transport.Listener.
func (l *gatedListener) Close() error {
	l.cancel()
	err := l.Listener.Close()
	l.wg.Wait()
	return err
}

// Addr implements transport.Listener.
func (l *gatedListener) Addr() net.Addr { return l.Listener.Addr() }

// admission returns the exchange that members run within limit.
func (m *membership) admission(limit time.Duration) admission {
	return func(ctx context.Context, conn transport.CapableConn, dialled bool) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		// Whatever blocks below ends when the connection does.
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		var err error
		if dialled {
			err = m.greet(ctx, conn)
			m.noteRefusal(conn.RemotePeer().String(), err)
		} else {
			err = m.receive(ctx, conn)
		}
		if err == nil && !stop() {
			err = context.Cause(ctx)
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%s didn't show a membership of swarm %s within %v", conn.RemotePeer(), m.info.ID, limit)
		}
		if err != nil && !dialled && !errors.Is(err, errAdmitted) && ctx.Err() != context.Canceled {
			if more, ok := m.turnedAway.note(time.Now()); ok {
				m.log.Warn("connection refused", "peer", conn.RemotePeer().String(), "addr", conn.RemoteMultiaddr().String(), "error", oneLine(err), "untold", more)
			}
		}
		return err
	}
}

// Why a connection ends, beside what is wrong with it.
var (
	errStranger = errors.New("this node doesn't know you")                           // all that a stranger learns
	errAdmitted = errors.New("the newcomer has its certificate and must dial again") // nothing is wrong
)

// refusalLog bounds what strangers can have a node log. Its zero value is ready.
type refusalLog struct {
	mu     sync.Mutex
	minute time.Time // when the current one began
	told   int
	untold int // since the last that was told
}

const refusalsPerMinute = 20

// note says whether to tell of a refusal now, and of how many before it nobody was told.
func (l *refusalLog) note(now time.Time) (untold int, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.told = now, 0
	}
	if l.told == refusalsPerMinute {
		l.untold++
		return 0, false
	}
	l.told++
	untold, l.untold = l.untold, 0
	return untold, true
}

// greet is the dialler's side.
func (m *membership) greet(ctx context.Context, conn transport.CapableConn) error {
	if err := m.bars(conn.RemotePeer().String()); err != nil {
		return err // it isn't shown a member's certificate either
	}
	hello := &wire.Hello{Lists: m.digest(), Certificate: m.certificate()}
	reply, err := exchange(ctx, conn, hello, wire.MaxJoin)
	if err != nil {
		return err
	}
	w, ok := reply.(*wire.Welcome)
	if !ok {
		return fmt.Errorf("%s answered with a frame of type %d", conn.RemotePeer(), reply.Type())
	}
	if err := m.admit(&w.Certificate, conn.RemotePeer().String(), w.Lists); err != nil {
		return err
	}
	if w.Renewed != nil {
		if err := m.renew(w.Renewed); err != nil {
			m.log.Warn("renewed certificate refused", "peer", conn.RemotePeer().String(), "error", err)
		}
	}
	return nil
}

// exchange sends one message on a new stream and reads one answer of at most
// limit bytes. A refusal is returned as an error.
func exchange(ctx context.Context, conn transport.CapableConn, m wire.Message, limit int64) (wire.Message, error) {
	s, err := conn.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("membership exchange with %s: %w", conn.RemotePeer(), err)
	}
	defer s.Close()
	if d, ok := ctx.Deadline(); ok {
		s.SetDeadline(d)
	}
	rw := multistream.NewMSSelect(s, joinProtocol)
	if err := wire.WriteFrame(rw, m); err != nil {
		return nil, fmt.Errorf("membership exchange with %s: %w", conn.RemotePeer(), err)
	}
	reply, err := wire.Read(io.LimitReader(rw, limit))
	if err != nil {
		return nil, fmt.Errorf("%s doesn't admit this node (wrong swarm, revoked, another version, or no swarm node at that address): %w", conn.RemotePeer(), err)
	}
	if r, ok := reply.(*wire.JoinRefused); ok {
		return nil, fmt.Errorf("%s refuses: %w", conn.RemotePeer(), r)
	}
	return reply, nil
}

// receive is the listener's side. It reads at most wire.MaxJoin bytes.
func (m *membership) receive(ctx context.Context, conn transport.CapableConn) error {
	peer := conn.RemotePeer().String()
	s, err := conn.AcceptStream()
	if err != nil {
		return err
	}
	defer s.Close()
	if d, ok := ctx.Deadline(); ok {
		s.SetDeadline(d)
	}
	rw := struct {
		io.Reader
		io.Writer
		io.Closer
	}{io.LimitReader(s, wire.MaxJoin), s, s}
	mux := multistream.NewMultistreamMuxer[string]()
	mux.AddHandlerWithFunc(joinProtocol, func(p string) bool {
		if p != joinProtocol {
			s.Reset() // no second guess: Negotiate fails at its next write
		}
		return p == joinProtocol
	}, nil)
	if _, _, err := mux.Negotiate(rw); err != nil {
		return fmt.Errorf("%s: %w", peer, err)
	}
	request, err := wire.Read(rw)
	if err != nil {
		return fmt.Errorf("%s: %w", peer, err)
	}
	switch r := request.(type) {
	case *wire.Hello:
		if err := m.admit(&r.Certificate, peer, r.Lists); err != nil {
			if m.proven(&r.Certificate, peer) {
				return refuse(s, err, err)
			}
			return refuse(s, errStranger, err)
		}
		return wire.WriteFrame(s, &wire.Welcome{
			Lists: m.digest(), Certificate: m.certificate(), Renewed: m.renewal(&r.Certificate)})
	case *wire.Redeem:
		admitted, told, err := m.redeem(r, peer)
		if err != nil {
			return refuse(s, told, fmt.Errorf("invite: %w", err))
		}
		m.log.Info("peer joined", "peer", peer, "swarm", m.info.ID, "role", admitted.Certificate.Role)
		return farewell(s, admitted, errAdmitted)
	}
	return fmt.Errorf("%s: frame of type %d before it is a member", peer, request.Type())
}

// refuse tells the dialler what it may know and returns why as the exchange's error.
func refuse(s network.MuxedStream, told, why error) error {
	return farewell(s, &wire.JoinRefused{Text: told.Error()}, why)
}

// farewell sends the last message on a connection that closes when this
// returns, and waits for the other side to have read it.
func farewell(s network.MuxedStream, m wire.Message, result error) error {
	if err := wire.WriteFrame(s, m); err != nil {
		return errors.Join(result, err)
	}
	s.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(s, wire.MaxJoin))
	return result
}
