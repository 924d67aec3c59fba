package test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// init makes this binary what a test started it as.
func init() {
	for env, run := range map[string]func(string) error{childEnv: child, memberEnv: member, crowdEnv: crowd, joinEnv: joinOnce, sniffEnv: func(string) error { return sniff() }} {
		if text := os.Getenv(env); text != "" {
			if err := run(text); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
}

// listen says a first word to the test that started this process, and answers what it is told, until there is no more.
func listen[Q, A any](first A, answer func(Q) A) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for say := first; ; {
		if err := out.Encode(say); err != nil {
			return err
		}
		var q Q
		if err := in.Decode(&q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		say = answer(q)
	}
}

// talk is a process of this binary in a namespace, which hears and says JSON values.
type talk struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   interface{ Close() error }
	enc  *json.Encoder
	dec  *json.Decoder
	over bool
}

// newTalk starts one. It ends with the test.
func newTalk(s *space, name, env string, config any) *talk {
	s.t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	k := &talk{t: s.t, name: name, cmd: s.command(self)}
	k.cmd.Env = append(os.Environ(), env+"="+string(text))
	k.cmd.Stderr = tail{s.t, name}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	k.in, k.enc, k.dec = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := k.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(k.end)
	return k
}

// end lets the process end, and waits for it.
func (k *talk) end() {
	if k.over {
		return
	}
	k.over = true
	k.in.Close()
	late := time.AfterFunc(patience, func() { k.cmd.Process.Kill() })
	defer late.Stop()
	if err := k.cmd.Wait(); err != nil {
		k.t.Errorf("%s ended with %v", k.name, err)
	}
}

func (k *talk) say(v any) {
	k.t.Helper()
	if err := k.enc.Encode(v); err != nil {
		k.t.Fatalf("%s doesn't hear: %v", k.name, err)
	}
}

func (k *talk) hear(v any) {
	k.t.Helper()
	if err := k.dec.Decode(v); err != nil {
		k.t.Fatalf("%s says nothing: %v", k.name, err)
	}
}

// do has a member do something.
func (k *talk) do(w wish) outcome {
	k.t.Helper()
	o := k.try(w)
	if o.Error != "" {
		k.t.Fatalf("%s, %s: %s", k.name, w.Do, o.Error)
	}
	return o
}

func (k *talk) try(w wish) (o outcome) {
	k.t.Helper()
	k.say(w)
	k.hear(&o)
	return o
}
