package node

import (
	"net"
	"strings"
	"testing"
)

// A node without addresses of its user's listens on the usual port, or on others when that is taken.
func TestDefaultListen(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:4077")
	if err != nil {
		t.Logf("somebody has the port already: %v", err)
	} else {
		defer l.Close()
	}
	addrs, port := DefaultListen()
	if port != 0 || len(addrs) < 2 || addrs[0] != "/ip4/0.0.0.0/tcp/0" || !strings.HasSuffix(addrs[1], "/udp/0/quic-v1") {
		t.Errorf("a taken port gives %v, port %d", addrs, port)
	}
	if n := newTestNet(t).start(func(c *Config) { c.Listen = nil }); len(n.Addrs()) == 0 {
		t.Error("a node without addresses of its user's listens nowhere")
	}
}
