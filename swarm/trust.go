package swarm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxTrusted bounds the peers that a data folder lists as trusted.
const maxTrusted = 4096

// trusted is the file <dir>/swarms/trusted: one peer ID per line.
func (s *Swarms) trusted() string { return filepath.Join(s.dir, "trusted") }

// Trusted returns the peers that the data folder's owner lists as trusted, in order. They are the user's own opinion, and go to nobody.
func (s *Swarms) Trusted() ([]PeerID, error) {
	b, err := os.ReadFile(s.trusted())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trusted peers: %w", err)
	}
	list := strings.Fields(string(b))
	if err := checkTrusted(list); err != nil {
		return nil, fmt.Errorf("trusted peers: %s: %w", s.trusted(), err)
	}
	return list, nil
}

// Trust lists peers as trusted, or, with remove, lists them no longer.
func (s *Swarms) Trust(peers []PeerID, remove bool) error {
	if err := checkTrusted(peers); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	list, err := s.Trusted()
	if err != nil {
		return err
	}
	if remove {
		for _, p := range peers {
			if !slices.Contains(list, p) {
				return fmt.Errorf("trust: %s isn't listed", p)
			}
		}
		list = slices.DeleteFunc(list, func(p PeerID) bool { return slices.Contains(peers, p) })
	} else {
		list = append(list, peers...)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if err := checkTrusted(list); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	text := strings.Join(list, "\n")
	if text != "" {
		text += "\n"
	}
	return replaceFile(s.trusted(), []byte(text), 0o600)
}

func checkTrusted(list []PeerID) error {
	if len(list) > maxTrusted {
		return fmt.Errorf("%d peers, and %d is the limit", len(list), maxTrusted)
	}
	for _, p := range list {
		if _, err := publicKey(p); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return nil
}
