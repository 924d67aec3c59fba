package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/starling-swarm/starling/runtime/tokenizer"
	"github.com/starling-swarm/starling/session"
)

// maxPrompt bounds a prompt from standard input in bytes.
const maxPrompt = 8 << 20

// promptFlags say what a model reads.
type promptFlags struct {
	Prompt []string `arg:"" name:"text" help:"The prompt; - reads it from standard input."`
	System string   `placeholder:"TEXT" help:"System message before the prompt."`
	Raw    bool     `help:"Take the prompt as it is, without the model's chat template."`
}

// prompt is what a model reads: a text as it is (raw), or a conversation's first turn.
type prompt struct {
	text, system string
	raw          bool
}

// read returns the prompt that the words on the command line are, or that is on standard input where they are "-".
func (f *promptFlags) read(stdin io.Reader) (p prompt, err error) {
	text := strings.Join(f.Prompt, " ")
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(stdin, maxPrompt+1))
		if err != nil {
			return p, fmt.Errorf("prompt from standard input: %w", err)
		}
		if len(b) > maxPrompt {
			return p, fmt.Errorf("the prompt on standard input has more than %d bytes", maxPrompt)
		}
		if text = string(b); !f.Raw {
			text = strings.TrimSpace(text)
		}
	}
	switch {
	case text == "":
		return p, usageError(errors.New("the prompt is empty"))
	case f.Raw && f.System != "":
		return p, usageError(errors.New("--raw takes the prompt as it is: put the system message into it, or drop --raw"))
	}
	return prompt{text: text, system: f.System, raw: f.Raw}, nil
}

// messages are a prompt's that is not raw.
func (p prompt) messages() (list []session.Message) {
	if p.system != "" {
		list = append(list, session.Message{Role: "system", Content: p.system})
	}
	return append(list, session.Message{Role: "user", Content: p.text})
}

// begin makes the prompt the history of a session.
func (p prompt) begin(ctx context.Context, s *session.Session) error {
	if p.raw {
		return s.AppendText(ctx, p.text)
	}
	return s.Chat(ctx, p.messages())
}

// answer takes the whole answer of a session that begins with the prompt; whoever wants its text as it comes listens to the session.
func (p prompt) answer(ctx context.Context, s *session.Session, q session.Request) (*session.Account, error) {
	if err := p.begin(ctx, s); err != nil {
		return nil, err
	}
	for _, err := range s.Generate(ctx, q) {
		if err != nil {
			return nil, err
		}
	}
	return s.Account(), nil
}

// tokens are the prompt's for a model in this process.
func (p prompt) tokens(tok *tokenizer.Tokenizer) (tokens []int32, err error) {
	if p.raw {
		tokens = tok.Encode(p.text, tokenizer.EncodeOptions{AddSpecial: true})
	} else {
		var list []tokenizer.Message
		for _, m := range p.messages() {
			list = append(list, tokenizer.Message{Role: m.Role, Content: m.Content})
		}
		text, err := tok.RenderChat(list, true, nil)
		if errors.Is(err, tokenizer.ErrNoTemplate) {
			return nil, fmt.Errorf("%w: give it the prompt as it is, with --raw", err)
		}
		if err != nil {
			return nil, err
		}
		tokens = tok.EncodeChat(text)
	}
	if len(tokens) == 0 {
		return nil, errors.New("the prompt is empty")
	}
	return tokens, nil
}
