package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/starling-swarm/starling/swarm"
)

type keyCmd struct {
	Export keyExportCmd `cmd:"" help:"Write the data folder's keys to a file, sealed with a passphrase."`
	Import keyImportCmd `cmd:"" help:"Put the keys of such a file into the data folder."`
}

// Help implements kong.HelpProvider.
func (keyCmd) Help() string {
	return `Two keys in the data folder can't be had again once they are lost: the peer key, which is this machine's place in its swarms,
and the owner key of each private swarm that was created here, without which nobody can invite or revoke unless it has other owners. What is lost with each is in docs/running-a-node.md.`
}

// passphraseFlags say where the passphrase comes from.
type passphraseFlags struct {
	PassphraseFile string `type:"existingfile" placeholder:"FILE" help:"Read the passphrase from the first line of this file. Default: ask on the terminal."`
}

// read returns the passphrase; twice says that it is a new one, which is asked for twice.
func (f *passphraseFlags) read(twice bool) (string, error) {
	if f.PassphraseFile != "" {
		b, err := os.ReadFile(f.PassphraseFile)
		line, _, _ := strings.Cut(string(b), "\n")
		return strings.TrimSuffix(line, "\r"), err
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", usageError(errors.New("there is no terminal to ask for the passphrase: give --passphrase-file"))
	}
	ask := func(text string) ([]byte, error) {
		fmt.Fprint(os.Stderr, text)
		defer fmt.Fprintln(os.Stderr)
		return term.ReadPassword(int(os.Stdin.Fd()))
	}
	first, err := ask("Passphrase: ")
	if err != nil || !twice {
		return string(first), err
	}
	again, err := ask("Once more: ")
	if err == nil && !bytes.Equal(first, again) {
		err = errors.New("the two passphrases differ")
	}
	return string(first), err
}

type keyExportCmd struct {
	File    string `arg:"" type:"path" help:"File to write; it must not exist."`
	OwnerOf string `placeholder:"SWARM" help:"Only the owner key of this private swarm, for another machine that is to invite, too."`
	passphraseFlags
}

// Help implements kong.HelpProvider.
func (keyExportCmd) Help() string {
	return `Writes the peer key, the swarms, this node's certificates and the owner keys that are here. The file is text, so it can
also be printed. Keep it, and the passphrase, elsewhere than this disk.

Examples:

  starling key export keys.txt
  starling key export --owner-of friends owner.txt`
}

// Run writes the file.
func (c *keyExportCmd) Run(g *globals) error {
	if _, err := os.Lstat(c.File); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: choose another name", c.File)
	}
	pass, err := c.read(true)
	if err != nil {
		return err
	}
	file, err := swarm.Backup(g.Data, pass, c.OwnerOf)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	fmt.Printf("wrote %s; without the passphrase it is of no use to anybody, you included\n", c.File)
	return nil
}

type keyImportCmd struct {
	File string `arg:"" type:"existingfile" help:"File that 'starling key export' wrote."`
	passphraseFlags
}

// Help implements kong.HelpProvider.
func (keyImportCmd) Help() string {
	return `Restores what the file has. A key that is there and differs is never overwritten. Run it while no node runs on the data
folder, and never run the same peer key on two machines: they would take each other's connections.

Examples:

  starling key import keys.txt`
}

// Run restores the file.
func (c *keyImportCmd) Run(g *globals) error {
	pass, err := c.read(false)
	if err != nil {
		return err
	}
	f, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, 8<<20)) // twice what a backup may have: it says so itself
	if err != nil {
		return err
	}
	r, err := swarm.Restore(g.Data, pass, file)
	if err != nil {
		return err
	}
	if r.Peer != "" {
		fmt.Printf("peer   %s\n", r.Peer)
	}
	for _, i := range r.Swarms {
		owner := ""
		for _, id := range r.Owned {
			if id == i.ID {
				owner = ", with its owner key"
			}
		}
		fmt.Printf("swarm  %s (%s)%s\n", printable(i.Name), i.ID, owner)
	}
	return nil
}
