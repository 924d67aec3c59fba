package node

import (
	"fmt"
	"net"
	"strconv"
)

// DefaultPort is where a node listens, by TCP and by QUIC, when its user names no address.
const DefaultPort = 4077

// DefaultListen returns the multiaddrs of DefaultPort on every address of this machine, in the families of addresses that
// it has; port says which port it is: another, free one for each where something uses DefaultPort already.
func DefaultListen() (addrs []string, port int) {
	families := []struct{ proto, host, suffix string }{{"ip4", "0.0.0.0", "4"}, {"ip6", "::", "6"}}
	port = DefaultPort
	for _, f := range families {
		if unused(f.suffix, f.host, 0) == nil && unused(f.suffix, f.host, DefaultPort) != nil {
			port = 0
		}
	}
	for _, f := range families {
		if unused(f.suffix, f.host, 0) == nil {
			addrs = append(addrs, fmt.Sprintf("/%s/%s/tcp/%d", f.proto, f.host, port), fmt.Sprintf("/%s/%s/udp/%d/quic-v1", f.proto, f.host, port))
		}
	}
	return addrs, port
}

// unused returns nil if nobody uses a port, neither by TCP nor by UDP; family is "4" or "6".
func unused(family, host string, port int) error {
	at := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp"+family, at)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.ListenPacket("udp"+family, at)
	if err != nil {
		return err
	}
	return c.Close()
}
