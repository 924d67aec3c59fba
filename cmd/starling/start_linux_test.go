package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

// writeSparse writes a model of 4 GB whose weights are a hole.
func writeSparse(t *testing.T, path string) {
	t.Helper()
	const layers, size = 240, 16 << 20
	text := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	number := binary.LittleEndian.AppendUint32
	b := binary.LittleEndian.AppendUint64(number([]byte("GGUF"), 3), layers)
	b = binary.LittleEndian.AppendUint64(b, 6) // pairs
	b = text(number(text(b, "general.architecture"), 8), "llama")
	for key, v := range map[string]uint32{"block_count": layers, "embedding_length": 1024, "context_length": 1024, "attention.head_count": 8} {
		b = number(number(text(b, "llama."+key), 4), v)
	}
	const tokens = 32000
	b = binary.LittleEndian.AppendUint64(number(number(text(b, "tokenizer.ggml.tokens"), 9), 8), tokens)
	for i := range tokens {
		b = text(b, fmt.Sprint("token", i))
	}
	for i := range layers {
		b = number(text(b, fmt.Sprintf("blk.%d.ffn_up.weight", i)), 2)
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, 1024), 4096)
		b = binary.LittleEndian.AppendUint64(number(b, 0), uint64(i)*size) // F32
	}
	b = append(b, make([]byte, -len(b)&31)...)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(b))+layers*size); err != nil {
		t.Fatal(err)
	}
}

// serveUntilUp starts a node, with further arguments, and returns its status once it answers, when that was, and what ends it.
func serveUntilUp(t *testing.T, data string, more ...string) (st control.Status, took time.Duration, pid int, end func()) {
	t.Helper()
	cmd := exec.Command("starling", append([]string{"serve", "--data", data, "--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1"}, more...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := status(ctx, data)
	for err != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		st, err = status(ctx, data)
	}
	took = time.Since(began)
	if err != nil {
		end()
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	return st, took, cmd.Process.Pid, end
}

// A node that holds 4 GB of verified weights answers on its socket, and offers them, without having read them.
func TestStartOf4GB(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes 4 GB first")
	}
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "sparse.gguf")
	writeSparse(t, file)
	if out, err := exec.Command("starling", "swarm", "create", "start", "--data", data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, _, _, end := serveUntilUp(t, data)
	if out, err := exec.Command("starling", "publish", file, "--data", data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	end()

	st, took, pid, _ := serveUntilUp(t, data)
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Models) != 1 || st.Models[0].Held == nil || st.Models[0].Held.Last != 239 {
		t.Fatalf("it holds %+v", st.Models)
	}
	m := regexp.MustCompile(`(?m)^rchar: (\d+)$`).FindSubmatch(counts)
	if m == nil {
		t.Fatalf("no count of bytes read in %q", counts)
	}
	read, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil || read > st.Models[0].Bytes/20 {
		t.Errorf("%d bytes were read, of %d; %v", read, st.Models[0].Bytes, err)
	}
	t.Logf("a node with %d bytes answered after %v, and had read %d bytes", st.Models[0].Bytes, took, read)
}

// A node whose bootstrap peers refuse connections, take them and say nothing, or don't answer at all, is up at once: the local interface
// is there, and says through whom it looks. The time is reported, for docs/network.md.
func TestStartWithDeadBootstrap(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if out, err := exec.Command("starling", "swarm", "create", "--public", "town", "--data", data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	deaf, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	addrs := []string{"/ip4/127.0.0.1/tcp/1", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", silent.Addr().(*net.TCPAddr).Port),
		fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", deaf.LocalAddr().(*net.UDPAddr).Port)}
	var more []string
	for range 4 {
		for _, a := range addrs {
			more = append(more, "--bootstrap", a+"/p2p/"+swarm.Ephemeral().ID())
		}
	}
	st, took, _, _ := serveUntilUp(t, data, more...)
	if len(st.Connected) != 0 || len(st.Looking) != 4*len(addrs) || st.Standing != "accepting" {
		t.Errorf("it is connected to %v, looks through %d nodes and is %s", st.Connected, len(st.Looking), st.Standing)
	}
	t.Logf("a node with %d dead bootstrap peers answered after %v", 4*len(addrs), took)
}
