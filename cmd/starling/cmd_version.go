package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/starling-swarm/starling/runtime"
)

// release is the version of this source tree; CHANGELOG.md has its history.
const release = "0.1.0-dev"

// version returns the release and, when the build knows it, the commit.
func version() string {
	v := release
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if commit != "" {
		v += " (" + commit + dirty + ")"
	}
	return v
}

type versionCmd struct {
	JSON bool `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (versionCmd) Help() string {
	return `Prints the version, the numerics profile (what two nodes must share before their numbers may be mixed) and the platform.`
}

// Run prints the version.
func (c *versionCmd) Run() error {
	profile := runtime.NewProfile(runtime.KVF16).String()
	platform := goruntime.GOOS + "/" + goruntime.GOARCH
	if c.JSON {
		return printJSON(map[string]string{"version": version(), "numerics_profile": profile, "platform": platform, "go": goruntime.Version()})
	}
	fmt.Printf("starling %s\nnumerics  %s\nplatform  %s, %s\n", version(), profile, platform, goruntime.Version())
	return nil
}
