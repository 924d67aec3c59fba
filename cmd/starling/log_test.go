package main

import (
	"log/slog"
	"testing"
)

func TestLogLevels(t *testing.T) {
	for text, want := range map[string]map[string]slog.Level{
		"":                             {"node": slog.LevelInfo, "swarm": slog.LevelInfo, "artifacts": slog.LevelWarn},
		"debug":                        {"node": slog.LevelDebug, "swarm": slog.LevelDebug, "artifacts": slog.LevelWarn},
		"error":                        {"node": slog.LevelError, "artifacts": slog.LevelError},
		"warn,node=debug":              {"node": slog.LevelDebug, "swarm": slog.LevelWarn},
		"swarm=error, artifacts=DEBUG": {"node": slog.LevelInfo, "swarm": slog.LevelError, "artifacts": slog.LevelDebug},
	} {
		var g globals
		if text != "" {
			if err := g.Log.UnmarshalText([]byte(text)); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		all := g.logger(slog.LevelInfo)
		for pkg, level := range want {
			l := all.With("pkg", pkg).With("session", "s").Handler() // a later attribute changes nothing
			for _, at := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				if got := l.Enabled(t.Context(), at); got != (at >= level) {
					t.Errorf("%q: %s logs %v: %v", text, pkg, at, got)
				}
			}
		}
	}
	for _, text := range []string{"loud", "info,warn", "nod=debug", "node=", "node=loud", "info,"} {
		if err := new(logLevels).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
