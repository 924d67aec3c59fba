package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// observer serves a node's figures, and Go's profiles if asked to, over HTTP.
type observer struct {
	server *http.Server
	addr   net.Addr
}

// startObserver listens on addr, a host and a port.
func startObserver(addr string, e control.Engine, profiles bool) (*observer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics %s: %w: choose another address, such as 127.0.0.1:9464", addr, err)
	}
	mux := http.NewServeMux()
	control.HandleMetrics(mux, e)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	o := &observer{server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, addr: l.Addr()}
	go func() { _ = o.server.Serve(l) }() // it ends with close
	return o, nil
}

// url returns where the figures are; "" of a nil observer.
func (o *observer) url() string {
	if o == nil {
		return ""
	}
	return "http://" + o.addr.String() + "/metrics"
}

// close ends the listener. A scrape under way gets a moment.
func (o *observer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if o.server.Shutdown(ctx) != nil {
		_ = o.server.Close() // it is the end either way
	}
}
