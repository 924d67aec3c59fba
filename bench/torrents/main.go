package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/swarm"
)

const protocol = "/starling/bench/torrent"

func main() {
	size := flag.Int("size", 256, "of the model, in MiB")
	rounds := flag.Int("rounds", 5, "of all kinds of connection")
	flag.Parse()
	if *size < 16 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "torrents: -size of 16 or more, -rounds of 1 or more")
		os.Exit(2)
	}
	if err := measure(*size, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "torrents:", err)
		os.Exit(1)
	}
}

// wire is a kind of connection: a seeder's service and a way there.
type wire struct {
	name   string
	seeder string // its ID to the fetchers
	dial   func(ctx context.Context, peer string) (net.Conn, error)
	speeds []float64 // MB/s, by round
}

func measure(size, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	file := filepath.Join(dir, "model.gguf")
	if err := writeModel(file, size/16); err != nil {
		return err
	}
	store, err := artifacts.OpenStore(filepath.Join(dir, "seeder"))
	if err != nil {
		return err
	}
	defer store.Close()
	model, err := store.Publish(ctx, []string{file}, nil)
	if err != nil {
		return err
	}
	var wires []*wire
	for _, open := range []func(ctx context.Context, dir string) (*wire, net.Listener, func(), error){plain,
		func(ctx context.Context, dir string) (*wire, net.Listener, func(), error) {
			return hosts(ctx, dir, "swarm, TCP", "/ip4/127.0.0.1/tcp/0")
		},
		func(ctx context.Context, dir string) (*wire, net.Listener, func(), error) {
			return hosts(ctx, dir, "swarm, QUIC", "/ip4/127.0.0.1/udp/0/quic-v1")
		},
	} {
		w, l, end, err := open(ctx, dir)
		if err != nil {
			return err
		}
		defer end()
		seeder, err := artifacts.NewTorrents(artifacts.TorrentConfig{Store: store, Listener: l, Dial: w.dial})
		if err != nil {
			return err
		}
		defer seeder.Close()
		if err := seeder.Seed(model); err != nil {
			return err
		}
		wires = append(wires, w)
	}
	for round := range rounds {
		for i := range wires {
			w := wires[(round+i)%len(wires)]
			took, err := fetch(ctx, filepath.Join(dir, "fetcher"), model.Bundle(), w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.speeds = append(w.speeds, float64(model.TotalBytes())/1e6/took.Seconds())
			fmt.Fprintf(os.Stderr, "round %d, %s: %.0f MB/s\n", round+1, w.name, w.speeds[round])
		}
	}
	fmt.Printf("%d MB, %d rounds\n\n| connection | MB/s, median | of plain TCP, median | least | most |\n| --- | ---: | ---: | ---: | ---: |\n", model.TotalBytes()/1e6, rounds)
	for _, w := range wires {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = w.speeds[i] / wires[0].speeds[i]
		}
		fmt.Printf("| %s | %.0f | %.2f | %.2f | %.2f |\n", w.name, median(w.speeds), median(ratios), slices.Min(ratios), slices.Max(ratios))
	}
	return nil
}

// fetch gets the whole model into a new store.
func fetch(ctx context.Context, dir string, b *artifacts.Bundle, w *wire) (time.Duration, error) {
	defer os.RemoveAll(dir)
	store, err := artifacts.OpenStore(dir)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	m, err := store.AddBundle(b)
	if err != nil {
		return 0, err
	}
	t, err := artifacts.NewTorrents(artifacts.TorrentConfig{Store: store, Dial: w.dial})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	began := time.Now()
	err = t.Fetch(ctx, m, m.Manifest().All(), func() []string { return []string{w.seeder} }, nil)
	return time.Since(began), err
}

func plain(context.Context, string) (*wire, net.Listener, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	dial := func(ctx context.Context, peer string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", peer)
	}
	return &wire{name: "plain TCP", seeder: l.Addr().String(), dial: dial}, l, func() {}, nil
}

// hosts starts two nodes of a public swarm of their own.
func hosts(ctx context.Context, dir, name, listen string) (w *wire, l net.Listener, end func(), err error) {
	if dir, err = os.MkdirTemp(dir, "swarm-"); err != nil {
		return nil, nil, nil, err
	}
	info, err := swarm.CreateSwarm(dir, "bench", true, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	seeder, err := swarm.Start(ctx, swarm.Config{Identity: swarm.Ephemeral(), Dir: dir, Swarm: info, Listen: []string{listen}})
	if err != nil {
		return nil, nil, nil, err
	}
	fetcher, err := swarm.Start(ctx, swarm.Config{Identity: swarm.Ephemeral(), Dir: dir, Swarm: info, Listen: []string{listen}, Bootstrap: seeder.Addrs()})
	if err != nil {
		seeder.Close()
		return nil, nil, nil, err
	}
	end = func() {
		fetcher.Close()
		seeder.Close()
	}
	dial := func(ctx context.Context, peer string) (net.Conn, error) { return fetcher.Open(ctx, peer, protocol) }
	return &wire{name: name, seeder: seeder.ID(), dial: dial}, seeder.Listener(protocol), end, nil
}

// writeModel writes a model of n layers of 16 MiB of noise.
func writeModel(path string, n int) error {
	var w gguf.Writer
	w.Set("general.architecture", gguf.ValueOf("llama"))
	w.Set("llama.block_count", gguf.ValueOf(uint32(n)))
	w.Set("llama.embedding_length", gguf.ValueOf(uint32(1024)))
	w.Set("llama.context_length", gguf.ValueOf(uint32(1024)))
	w.Set("llama.attention.head_count", gguf.ValueOf(uint32(8)))
	w.Set("tokenizer.ggml.tokens", gguf.ArrayOf([]string{"a", "b"}))
	noise := rand.NewChaCha8([32]byte{1})
	for i := range n {
		data := make([]byte, 16<<20)
		noise.Read(data) // never fails
		w.AddTensor(fmt.Sprintf("blk.%d.ffn_up.weight", i), gguf.F32, []uint64{1024, 4096}, data)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
