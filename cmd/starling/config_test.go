package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestEverySettingIsReachable parses each global setting from the environment:
// a tag that is misspelt would be silently ignored.
func TestEverySettingIsReachable(t *testing.T) {
	dir := t.TempDir()
	for env, value := range map[string]string{"STARLING_DATA": dir, "STARLING_SWARM": "s", "STARLING_LISTEN": "/ip4/127.0.0.1/tcp/1", "STARLING_BOOTSTRAP": "b",
		"STARLING_LAN": "true", "STARLING_THREADS": "3", "STARLING_KV_MEMORY": "1GiB", "STARLING_LOG_LEVEL": "debug", "STARLING_VERBOSE": "1", "STARLING_MODEL": "m"} {
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
	if g.Data != dir || g.Swarm != "s" || len(g.Listen) != 1 || len(g.Bootstrap) != 1 || !g.LAN || g.Threads != 3 || g.KVMemory != 1<<30 ||
		g.LogLevel != "debug" || !g.Verbose || c.Serve.Model != "m" {
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
