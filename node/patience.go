package node

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// patientReader gives each piece of a frame a deadline of its own, so that a
// slow link is no dead one.
type patientReader struct {
	s interface {
		io.Reader
		SetReadDeadline(time.Time) error
	}
	heard func([]byte) // bytes have come; may be nil
	alive func() bool  // the peer speaks on other streams: silence of this one is no harm; may be nil
	bytes int          // read so far

	budget wire.Budget // of frames that have come in part; nil: whatever they take
	free   func() bool // the next frame may take what it likes; may be nil
	held   int         // bytes of budget
}

// Reserve implements wire.Budget.
func (r *patientReader) Reserve(bytes int) error {
	if r.budget == nil || r.free != nil && r.free() {
		return nil
	}
	if err := r.budget.Reserve(bytes); err != nil {
		return err
	}
	r.held += bytes
	return nil
}

// Release implements wire.Budget: the frame is here, or won't come.
func (r *patientReader) Release(int) {
	if r.held > 0 {
		r.budget.Release(r.held)
		r.held = 0
	}
}

// giveUp resets a stream that can't be read to its end: merely closed, it would take what the peer still sends, up to a window.
func giveUp(conn any, err error) {
	if s, ok := conn.(stream); ok && !errors.Is(err, io.EOF) {
		_ = s.Reset()
	}
}

// Read implements io.Reader.
func (r *patientReader) Read(b []byte) (int, error) {
	for {
		if err := r.s.SetReadDeadline(time.Now().Add(leaseTimeout)); err != nil {
			return 0, err
		}
		n, err := r.s.Read(b)
		r.bytes += n
		if n > 0 && r.heard != nil {
			r.heard(b[:n])
		}
		var timeout net.Error
		if n == 0 && r.alive != nil && errors.As(err, &timeout) && timeout.Timeout() && r.alive() {
			continue
		}
		return n, err
	}
}

type deadlineWriter interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// writeFrame writes m in pieces, each with a deadline of its own.
func writeFrame(s deadlineWriter, m wire.Message) error {
	b := wire.Append(nil, m)
	for len(b) > 0 {
		n := min(len(b), writeStep)
		if err := s.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := s.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
