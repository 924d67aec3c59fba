// Package utp stands in for github.com/anacrolix/go-utp, which the module
// proxy does not serve. anacrolix/torrent refers to these names, but Starling
// runs it with uTP off, so no socket is ever made: both constructors refuse.
package utp

import (
	"context"
	"errors"
	"log/slog"
	"net"
)

var errOff = errors.New("uTP is not part of this build")

// Default names the implementation in the torrent library's messages.
var Default = "uTP (off)"

// FirewallCallback decides whether a first packet from addr is ignored.
type FirewallCallback func(addr net.Addr) bool

// Option configures a socket; none has an effect here.
type Option func()

// Socket is the part of a uTP socket that the torrent library names.
type Socket interface {
	net.PacketConn
	Accept() (net.Conn, error)
	Addr() net.Addr
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	SetFirewallCallback(FirewallCallback)
}

// WithLogger is accepted and ignored.
func WithLogger(*slog.Logger) Option { return func() {} }

// NewSocket always refuses.
func NewSocket(network, addr string, opts ...Option) (Socket, error) { return nil, errOff }

// NewSocketFromPacketConn always refuses; the caller keeps pc.
func NewSocketFromPacketConn(pc net.PacketConn, opts ...Option) (Socket, error) { return nil, errOff }
