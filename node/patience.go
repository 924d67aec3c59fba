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
