package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// TestEverySettingIsReachable parses each global setting from the environment:
// a tag that is misspelt would be silently ignored.
func TestEverySettingIsReachable(t *testing.T) {
	dir := t.TempDir()
	for env, value := range map[string]string{"STARLING_DATA": dir, "STARLING_SWARM": "s", "STARLING_LISTEN": "/ip4/127.0.0.1/tcp/1", "STARLING_BOOTSTRAP": "b",
		"STARLING_LAN": "true", "STARLING_THREADS": "3", "STARLING_KV_MEMORY": "1GiB", "STARLING_KV_DISK": "4GiB", "STARLING_LOG": "warn,node=debug", "STARLING_LOG_FORMAT": "json", "STARLING_VERBOSE": "1", "STARLING_MODEL": "m",
		"STARLING_DECODE_THREADS": "2", "STARLING_CPUS": "7", "STARLING_NICE": "5", "STARLING_YIELD": "false", "STARLING_PACK": "off"} {
		t.Setenv(env, value)
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
	var c cli
	p, err := newParser(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Parse([]string{"serve"}); err != nil {
		t.Fatal(err)
	}
	g := c.globals
	if g.Data != dir || g.Swarm != "s" || len(g.Listen) != 1 || len(g.Bootstrap) != 1 || !g.LAN || g.Threads != 3 || g.KVMemory != 1<<30 || g.KVDisk != 4<<30 ||
		g.DecodeThreads != 2 || g.CPUs != 7 || g.Nice != 5 || g.Yield || g.Pack.Packing != runtime.PackOff || g.Log.packages["node"] != slog.LevelDebug || g.LogFormat != "json" || !g.Verbose || c.Serve.Model != "m" {
		t.Errorf("%+v, model %q", g, c.Serve.Model)
	}
}

func TestDefaultFolders(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/xdg/data")
	t.Setenv("XDG_CONFIG_HOME", "/xdg/config")
	if filepath.Separator == '/' && (defaultDataDir() != "/xdg/data/starling" || defaultConfigPath() != "/xdg/config/starling/config.json") {
		t.Errorf("%s, %s", defaultDataDir(), defaultConfigPath())
	}
	t.Setenv("XDG_DATA_HOME", "relative") // the XDG rules: ignored
	if d := defaultDataDir(); !strings.HasSuffix(d, "starling") || strings.Contains(d, "relative") {
		t.Error(d)
	}
}

// TestComputing checks how the settings of threads combine, what is refused, and that the defaults are polite.
func TestComputing(t *testing.T) {
	parse := func(args ...string) (cli, error) {
		t.Setenv("XDG_CONFIG_HOME", t.TempDir())
		var c cli
		p, err := newParser(&c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Parse(append([]string{"serve"}, args...))
		return c, err
	}
	for _, c := range []struct {
		args            []string
		prefill, decode int
	}{
		{[]string{"-t", "6"}, 6, 6},
		{[]string{"-t", "6", "--decode-threads", "4"}, 6, 4},
		{[]string{"-t", "6", "--decode-threads", "4", "--cpus", "5"}, 5, 4},
		{[]string{"--cpus", "1"}, 1, 1},
	} {
		got, err := parse(c.args...)
		if err != nil {
			t.Fatal(err)
		}
		if prefill, decode := got.threads(); prefill != c.prefill || decode != c.decode {
			t.Errorf("%v: %d and %d threads", c.args, prefill, decode)
		}
	}
	for _, args := range [][]string{{"-t", "-1"}, {"--cpus", "-1"}, {"--nice", "20"}, {"--nice", "-1"}, {"--pack", "perhaps"}} {
		if _, err := parse(args...); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	got, err := parse()
	if err != nil || !got.Yield || got.Pack.Packing != runtime.PackAuto {
		t.Errorf("defaults: %v, %v", got.computing, err)
	}
	if got, err := parse("--no-yield", "--pack", "on"); err != nil || got.Yield || got.Pack.Packing != runtime.PackOn {
		t.Errorf("%v, %v", got.computing, err)
	}
}
