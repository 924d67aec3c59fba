package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/node/gateway"
)

// frontFlags say how a gateway is reached, and by whom.
type frontFlags struct {
	Keys string        `type:"path" env:"STARLING_GATEWAY_KEYS" placeholder:"FILE" help:"File of API keys, one a line, of which a request must show one; # begins a comment. Required beyond this machine."`
	Cert string        `name:"tls-cert" type:"path" env:"STARLING_GATEWAY_TLS_CERT" placeholder:"FILE" help:"PEM file of the gateway's TLS certificate and those that it rests on. Required beyond this machine."`
	Key  string        `name:"tls-key" type:"path" env:"STARLING_GATEWAY_TLS_KEY" placeholder:"FILE" help:"PEM file of the certificate's key."`
	Wait time.Duration `name:"wait" default:"30s" env:"STARLING_GATEWAY_WAIT" placeholder:"TIME" help:"How long a request waits for room where every peer that could answer is busy; then it is told to come back. Default: 30s."`
}

// front is a gateway's listener.
type front struct {
	server *http.Server
	addr   net.Addr
	scheme string
	ended  chan error
}

// leastKey is the least length of an API key in bytes.
const leastKey = 16

// start listens on addr, a host and a port, and answers with what client's node gets from the swarm. flag is how the address was given.
func (f *frontFlags) start(flag, addr string, client *control.Client, log *slog.Logger) (*front, error) {
	if f.Wait < 0 {
		return nil, usageError(fmt.Errorf("--wait %v: give a time such as 30s, or 0", f.Wait))
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, usageError(errors.New("--tls-cert and --tls-key: give both, or neither"))
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s %s: write HOST:PORT, such as 127.0.0.1:4078", flag, addr))
	}
	if !loopbackHost(host) && (f.Keys == "" || f.Cert == "") {
		return nil, usageError(fmt.Errorf("%s %s: whoever reaches this address could use the swarm in your name and read along: give --keys and --tls-cert, or an address such as 127.0.0.1:4078", flag, addr))
	}
	keys, err := readKeys(f.Keys)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: gateway.New(gateway.Config{Client: client, Keys: keys, Wait: f.Wait, Log: log}), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	scheme := "http"
	if f.Cert != "" {
		scheme = "https"
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.Cert, f.Key, err)
		}
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: choose another address", flag, addr, err)
	}
	fr := &front{server: s, addr: l.Addr(), scheme: scheme, ended: make(chan error, 1)}
	go func() {
		if scheme == "https" {
			fr.ended <- s.ServeTLS(l, "", "")
		} else {
			fr.ended <- s.Serve(l)
		}
	}()
	return fr, nil
}

// loopbackHost reports whether only this machine reaches a host.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// readKeys reads a file of keys; "" has none.
func readKeys(path string) (keys []string, err error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--keys: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		key, _, _ := strings.Cut(lines.Text(), "#")
		switch key = strings.TrimSpace(key); {
		case key == "":
		case len(key) < leastKey || strings.ContainsAny(key, " \t"):
			return nil, fmt.Errorf("--keys %s: line %d: a key has at least %d characters and no blanks", path, n, leastKey)
		default:
			keys = append(keys, key)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--keys %s: %w", path, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("--keys %s: no key in it: write one a line, such as what \"openssl rand -hex 32\" prints", path)
	}
	return keys, nil
}

// url returns the base URL that clients are given; "" of a nil front.
func (f *front) url() string {
	if f == nil {
		return ""
	}
	return f.scheme + "://" + f.addr.String() + "/v1"
}

// close ends the listener. Answers under way get limit.
func (f *front) close(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if f.server.Shutdown(ctx) != nil {
		_ = f.server.Close() // it is the end either way
	}
}
