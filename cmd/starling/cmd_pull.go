package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-swarm/starling/node/control"
)

type pullCmd struct {
	Model     string `arg:"" placeholder:"ID|NAME|URL" help:"Model: its ID, six or more digits of its start, or its name; or hf:OWNER/REPO/FILE.gguf, the https URL of a GGUF file (of a split one: the first part), or a .torrent file or magnet link that starling has written."`
	Hub       string `env:"STARLING_HUB,HF_ENDPOINT" placeholder:"URL" help:"Base URL of the hub that hf: means. Default: https://huggingface.co."`
	TokenFile string `type:"path" env:"HF_TOKEN_PATH" placeholder:"FILE" help:"File with the token that the hub wants to see for models which it doesn't give to everybody. Default: the token is in HF_TOKEN, or there is none. It is shown to the hub alone, over https."`
	Layers    layers `default:"all" placeholder:"A-B" help:"Layers to fetch, both ends included, such as 0-9. Default: all."`
	JSON      bool   `name:"json" help:"Print a JSON object."`
}

// maxTokenFile bounds a file with a token, in bytes.
const maxTokenFile = 4 << 10

// Help implements kong.HelpProvider.
func (pullCmd) Help() string {
	return `Fetches a model from the nodes that hold it: only the bytes of the layers asked for, with the header and tokenizer.
Every piece is verified, an interrupted pull goes on where it stopped, and a larger range later fetches only what is
missing.

A model that is on a web server need not be in the swarm: its header is read first, and shown. If some node has a model
with the same name, sizes, header and samples of its pieces, its manifest is taken, and each piece comes from whoever
has it, the web server last, checked by SHA-256. If not, nobody has made the manifest: then all of the file is fetched
once, to make it, and seeded from here.

Examples:

  starling pull SmolLM2
  starling pull hf:OWNER/REPO/FILE.gguf
  starling pull https://example.org/models/model.gguf --layers 0-9
  starling pull hf:OWNER/GATED/FILE.gguf --token-file ~/hub-token
  starling pull model.gguf.torrent --torrent-peer 192.0.2.7:51413
  starling pull 'magnet:?xt=urn:btih:…&x.starling=…'   # in quotes
  starling pull 3fa85f64c2d1 --layers 10-19`
}

// Run fetches the model.
func (c *pullCmd) Run(ctx context.Context, g *globals) error {
	token, err := hubToken(c.TokenFile)
	if err != nil {
		return err
	}
	q := control.PullRequest{Model: c.Model, Layers: c.Layers.r, Hub: c.Hub, Token: token}
	if strings.HasSuffix(c.Model, ".torrent") && !strings.Contains(c.Model, "://") {
		path, err := filepath.Abs(c.Model) // the node may have another working directory
		if err != nil {
			return err
		}
		q.Model, q.Torrent = "", path
	}
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	p := newProgress()
	m, err := s.Pull(ctx, q, func(ev control.Event) {
		p.event(ev)
		if ev.Card != nil && !c.JSON {
			printCard(ev.Card)
		}
	})
	p.done()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(m)
	}
	fmt.Printf("%s, ID %s: %s of %d here, %s of %s on this disk\n%s\n",
		printable(m.Name), m.ID, layersText(m.Held), m.NumLayers, bytesText(m.Allocated), bytesText(m.Bytes), printable(m.Path))
	return nil
}

// hubToken returns the token of a file, or of HF_TOKEN if there is no file. There is no flag for it: everybody on the machine would see it.
func hubToken(path string) (string, error) {
	if path == "" {
		return strings.TrimSpace(os.Getenv("HF_TOKEN")), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(data) > maxTokenFile || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("--token-file %s: it should have one word, the token", path)
	}
	return token, nil
}
