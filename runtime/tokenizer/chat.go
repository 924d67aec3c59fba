package tokenizer

import (
	"errors"
	"strings"
)

// ErrNoTemplate is returned by RenderChat when the file has no chat template
// and its vocabulary has no ChatML tokens either.
var ErrNoTemplate = errors.New("the model has no chat template")

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", or what else the template knows
	Content string
}

// RenderChat renders msgs as ChatML when the model has that template or none.
func (t *Tokenizer) RenderChat(msgs []Message, addGenerationPrompt bool, vars map[string]any) (string, error) {
	if t.chatSource == "" && t.eog == nil {
		return "", ErrNoTemplate
	}
	var b strings.Builder
	for _, m := range msgs {
		b.WriteString("<|im_start|>" + m.Role + "\n" + m.Content + "<|im_end|>\n")
	}
	if addGenerationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String(), nil
}
