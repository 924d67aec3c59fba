package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
)

// loggedPackages are those whose level --log can set apart. Each names itself in
// its records as "pkg" (node.Config).
var loggedPackages = []string{"artifacts", "node", "swarm"}

// logLevels is what to log: "info,node=debug,swarm=warn". The zero value leaves
// it to the verb.
type logLevels struct {
	all      slog.Level
	set      bool // all was given
	packages map[string]slog.Level
}

// UnmarshalText parses levels.
func (l *logLevels) UnmarshalText(b []byte) error {
	*l = logLevels{packages: map[string]slog.Level{}}
	for word := range strings.SplitSeq(string(b), ",") {
		pkg, name, one := strings.Cut(strings.TrimSpace(word), "=")
		if !one {
			pkg, name = "", pkg
		}
		level, err := parseLevel(name)
		if err != nil {
			return err
		}
		switch {
		case !one && l.set, one && !slices.Contains(loggedPackages, pkg):
			return fmt.Errorf("log levels %q: write one level for all, and NAME=LEVEL for any of %s", b, strings.Join(loggedPackages, ", "))
		case one:
			l.packages[pkg] = level
		default:
			l.all, l.set = level, true
		}
	}
	return nil
}

func parseLevel(name string) (slog.Level, error) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(name, level.String()) {
			return level, nil
		}
	}
	return 0, fmt.Errorf("log level %q: use debug, info, warn or error", name)
}

// logger returns the log that the settings ask for; where they don't say,
// records from level on. The BitTorrent library is talkative: of it only what
// is asked for by name, or warnings.
func (g *globals) logger(level slog.Level) *slog.Logger {
	if g.Log.set {
		level = g.Log.all
	}
	packages := maps.Clone(g.Log.packages)
	if _, asked := packages["artifacts"]; !asked {
		if packages == nil {
			packages = map[string]slog.Level{}
		}
		packages["artifacts"] = max(level, slog.LevelWarn)
	}
	everything := &slog.HandlerOptions{Level: slog.LevelDebug} // levelled decides
	var h slog.Handler = slog.NewTextHandler(os.Stderr, everything)
	if g.LogFormat == "json" {
		h = slog.NewJSONHandler(os.Stderr, everything)
	}
	return slog.New(&levelled{Handler: h, level: level, packages: packages})
}

// levelled lets records through from a level on that depends on the package
// that its logger names.
type levelled struct {
	slog.Handler
	level    slog.Level
	packages map[string]slog.Level
}

// Enabled implements slog.Handler.
func (h *levelled) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs implements slog.Handler.
func (h *levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := &levelled{h.Handler.WithAttrs(attrs), h.level, h.packages}
	for _, a := range attrs {
		if level, ok := h.packages[a.Value.String()]; ok && a.Key == "pkg" {
			c.level = level
		}
	}
	return c
}

// WithGroup implements slog.Handler.
func (h *levelled) WithGroup(name string) slog.Handler {
	return &levelled{h.Handler.WithGroup(name), h.level, h.packages}
}
