package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

// clockEnv is by how much the commands' clocks are ahead of this machine's.
const clockEnv = "STARLING_TEST_CLOCK"

func TestMain(m *testing.M) {
	if text := os.Getenv(clockEnv); text != "" {
		ahead, err := time.ParseDuration(text)
		if err == nil {
			err = shiftClock(ahead)
		}
		if err != nil {
			panic(err)
		}
	}
	testscript.Main(m, map[string]func(){"starling": main})
}

// TestScripts runs the sessions in testdata. Besides testscript's commands they
// have
//
//	ready DIR [serving]    waits until a node answers on DIR (and serves a model)
//	gone DIR               waits until none does
//	busy DIR ROLE          waits until a node takes part in a session in a role
//	standing DIR WHAT      waits until a node says that of the work it takes
//	offers N DIR…          waits until each of these nodes sees the offers of N peers, itself included
//	identify DIR PEER PID  sets PEER and PID to a node's peer ID and process ID
//	locate DIR ADDR PORT ID sets ADDR and PORT to a node's first address and its TCP port, ID to its swarm
//	owned DIR              waits until a node is an owner of its swarm
//	apart DIR PEER         waits until a node has no connection with a peer
//	revoke DIR PEER        ends a peer's membership, where no node runs on the owner's DIR
//	keep NAME              sets NAME to the last command's output
//	get URL [KEY]          prints what a gateway answers, once it does
//	post URL JSON [KEY]    likewise
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "data"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			e.Setenv("STARLING_LISTEN", loopback)
			e.Setenv("STARLING_THREADS", "1")
			e.Setenv("OWN", ownLoopback())
			return writeModels(e.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"ready": ready, "gone": gone, "busy": busy, "standing": standing, "offers": offers, "identify": identify, "locate": locate, "owned": owned, "apart": apart, "revoke": revoke, "keep": keep, "get": fetch, "post": fetch},
	})
}

// ownLoopback is an address of this machine that other sockets don't use, where the system has many, so that a port that is free stays
// free. Scripts have it as OWN.
func ownLoopback() string {
	if goruntime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: ready DIR [holding|serving]")
	}
	poll(ts, func(ctx context.Context) bool {
		st, err := status(ctx, ts.MkAbs(args[0]))
		if err != nil || len(args) == 1 {
			return err == nil
		}
		for _, m := range st.Models {
			if m.Serving != nil || args[1] == "holding" && m.Held != nil {
				return true
			}
		}
		return false
	})
}

func busy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: busy DIR ROLE")
	}
	poll(ts, func(ctx context.Context) bool {
		st, err := status(ctx, ts.MkAbs(args[0]))
		return err == nil && slices.ContainsFunc(st.Sessions, func(s control.Session) bool { return s.Role == args[1] })
	})
}

func standing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: standing DIR WHAT")
	}
	poll(ts, func(ctx context.Context) bool {
		st, err := status(ctx, ts.MkAbs(args[0]))
		return err == nil && st.Standing == args[1]
	})
}

func offers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: offers N DIR...")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("offers: %v", err)
	}
	for _, dir := range args[1:] {
		poll(ts, func(ctx context.Context) bool {
			c, err := control.Dial(ctx, ts.MkAbs(dir))
			if err != nil {
				return false
			}
			defer c.Close()
			peers, err := c.Peers(ctx)
			return err == nil && len(peers) == n
		})
	}
}

func identify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: identify DIR PEER PID")
	}
	st, err := status(context.Background(), ts.MkAbs(args[0]))
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Setenv(args[1], st.Peer)
	ts.Setenv(args[2], strconv.Itoa(st.PID))
}

func locate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: locate DIR ADDR PORT ID")
	}
	st, err := status(context.Background(), ts.MkAbs(args[0]))
	if err != nil || len(st.Addrs) == 0 {
		ts.Fatalf("no address: %v", err)
	}
	ts.Setenv(args[1], st.Addrs[0])
	ts.Setenv(args[2], strings.Split(st.Addrs[0], "/")[4])
	ts.Setenv(args[3], st.Swarm.ID)
}

func owned(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: owned DIR")
	}
	poll(ts, func(ctx context.Context) bool {
		st, err := status(ctx, ts.MkAbs(args[0]))
		return err == nil && st.Swarm.Owner
	})
}

func apart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: apart DIR PEER")
	}
	poll(ts, func(ctx context.Context) bool {
		st, err := status(ctx, ts.MkAbs(args[0]))
		return err == nil && !slices.Contains(st.Connected, args[1])
	})
}

func revoke(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: revoke DIR PEER")
	}
	swarms := swarm.OpenSwarms(ts.MkAbs(args[0]))
	list, err := swarms.List()
	if err != nil || len(list) != 1 {
		ts.Fatalf("%d swarms: %v", len(list), err)
	}
	if err := swarms.Revoke(list[0].ID, args[1]); err != nil {
		ts.Fatalf("%v", err)
	}
}

// status asks the node on dir.
func status(ctx context.Context, dir string) (control.Status, error) {
	c, err := control.Dial(ctx, dir)
	if err != nil {
		return control.Status{}, err
	}
	defer c.Close()
	return c.Status(ctx)
}

func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone DIR")
	}
	poll(ts, func(ctx context.Context) bool {
		c, err := control.Dial(ctx, ts.MkAbs(args[0]))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

func poll(ts *testscript.TestScript, ok func(context.Context) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			ts.Fatalf("still not so after %v", patience)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// fetch is get and post: a body makes it a post.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 3 {
		ts.Fatalf("usage: get URL [KEY], post URL JSON [KEY]")
	}
	method, body, key := "GET", "", args[1:]
	if len(args) > 1 && strings.HasPrefix(args[1], "{") {
		method, body, key = "POST", args[1], args[2:]
	}
	poll(ts, func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, method, args[0], strings.NewReader(body))
		if err != nil {
			ts.Fatalf("%v", err)
		}
		r.Header.Set("Content-Type", "application/json")
		for _, k := range key {
			r.Header.Set("Authorization", "Bearer "+k)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		_, err = io.Copy(ts.Stdout(), reply.Body)
		return err == nil
	})
}

// writeModels writes the smoke model into dir, and files that aren't models.
func writeModels(dir string) error {
	if _, err := writeSmoke(dir); err != nil {
		return err
	}
	b := smokeModel
	for name, data := range map[string][]byte{
		"truncated.gguf": b[:len(b)/2],
		"header.gguf":    b[:100],
		"empty.gguf":     nil,
		"text.gguf":      []byte("This is not a model.\n"),
		"mmproj.gguf":    headerOf("general.architecture", "clip", "general.type", "mmproj"),
		"foreign.gguf":   headerOf("general.architecture", "mystery"),
		"lora.gguf":      headerOf("general.architecture", "llama", "general.type", "adapter"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// headerOf returns a GGUF file (v3: magic, version, tensor count, pair count,
// then per pair a key, type 8 and a string) without tensors.
func headerOf(pairs ...string) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(pairs)/2))
	str := func(s string) {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	for i := 0; i < len(pairs); i += 2 {
		str(pairs[i])
		b = binary.LittleEndian.AppendUint32(b, 8)
		str(pairs[i+1])
	}
	return b
}
