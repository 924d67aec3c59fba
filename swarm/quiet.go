package swarm

import (
	"log/slog"
	"os"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/gologshim"
)

// libp2p writes to the standard error what this package returns as errors.
// GOLOG_LOG_LEVEL, libp2p's own variable, brings it back.
func init() {
	if os.Getenv("GOLOG_LOG_LEVEL") == "" {
		gologshim.SetDefaultHandler(slog.DiscardHandler)
		golog.SetAllLoggers(golog.LevelFatal)
	}
}
