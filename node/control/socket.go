package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// ErrNoDaemon is wrapped by Dial when no daemon owns the data folder.
var ErrNoDaemon = errors.New("no node runs on this data folder")

// maxSocketPath is the longest path of a Unix socket that every system takes:
// BSD and macOS keep it in 104 bytes, Linux in 108, the last one zero.
const maxSocketPath = 103

// Socket returns the path of the socket of the daemon that owns dataDir.
func Socket(dataDir string) string { return filepath.Join(dataDir, "starling.sock") }

// Listen opens the socket of dataDir for its owner's eyes only. The caller owns
// the folder (it holds the model store's lock), so that a socket on which
// nobody answers is a dead node's and is replaced.
func Listen(dataDir string) (net.Listener, error) {
	path := Socket(dataDir)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s has %d bytes, systems take %d: choose a shorter data folder with --data", path, len(path), maxSocketPath)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another node answers on %s: stop it, or choose another data folder with --data", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("can't replace the socket of a dead node: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("local socket: %w: choose another data folder with --data", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("local socket: %w", err)
	}
	return l, nil
}

// Dial returns a client of the daemon that owns dataDir; it fails at once, with
// ErrNoDaemon, if none runs.
func Dial(ctx context.Context, dataDir string) (*Client, error) {
	path := Socket(dataDir)
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	conn, err := dial(ctx)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || refused(err) || len(path) > maxSocketPath {
			return nil, fmt.Errorf("%w (%s)", ErrNoDaemon, dataDir)
		}
		return nil, fmt.Errorf("local socket: %w", err)
	}
	conn.Close()
	return NewClient(dial), nil
}
