package main

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/starling-swarm/starling/kernels"
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
	return `Prints the version, the numerics profile (what two nodes must share before their numbers may be mixed) and the platform.
With -v also the kernels in use and the others that this processor can run, which all give the same bits: the environment
variable STARLING_KERNELS chooses one by its name.`
}

// Run prints the version.
func (c *versionCmd) Run(g *globals) error {
	profile := runtime.NewProfile(runtime.KVF16).String()
	platform := goruntime.GOOS + "/" + goruntime.GOARCH
	problem := ""
	if err := errors.Join(kernels.VariantError(), kernels.Distrusted()); err != nil {
		problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if c.JSON {
		about := map[string]any{"version": version(), "numerics_profile": profile, "platform": platform, "go": goruntime.Version(), "variant": kernels.Active().String()}
		if g.Verbose {
			about["variants"], about["variant_problem"] = variantNames(), problem
		}
		return printJSON(about)
	}
	fmt.Printf("starling %s\nnumerics  %s\nplatform  %s, %s\n", version(), profile, platform, goruntime.Version())
	if g.Verbose {
		fmt.Printf("kernels   %v of %s\n", kernels.Active(), strings.Join(variantNames(), ", "))
		if problem != "" {
			fmt.Printf("problem   %s\n", printable(problem))
		}
	}
	return nil
}

// variantNames are the kernels that this build has and this processor can run, slowest first.
func variantNames() (names []string) {
	for _, v := range kernels.Variants() {
		names = append(names, v.String())
	}
	return names
}
