package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/starling-swarm/starling/runtime/tokenizer/template"
)

// ErrNoTemplate is returned by [Tokenizer.RenderChat] for a model that has
// neither a chat template nor the tokens of ChatML: it is not a chat model.
var ErrNoTemplate = errors.New("the model has no chat template; give it plain text, or use a model trained for chat")

// chatML is the template of a model that ships none but has the tokens
// <|im_start|> and <|im_end|>.
const chatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// Message is one turn of a conversation. Turns that a role and a text cannot
// express, such as tool calls, go into vars["messages"] of [Tokenizer.RenderChat].
type Message struct {
	Role    string // "system", "user", "assistant", or what else the template knows
	Content string
}

// RenderChat renders a conversation by the model's own template, or by ChatML
// where the model has none but knows its tokens. The template sees messages,
// add_generation_prompt, bos_token, eos_token, tools (none) and what is in
// vars, which wins; a vars["now"] of type time.Time is the time that
// strftime_now reads, and is not passed on.
//
// The template is foreign code; it runs under template's default limits.
// Errors are [ErrNoTemplate] and those of package template: a
// [*template.RaisedError] is the template's refusal of this conversation.
//
// Encode the result with [Tokenizer.EncodeChat].
func (t *Tokenizer) RenderChat(msgs []Message, addGenerationPrompt bool, vars map[string]any) (string, error) {
	if t.chatSource == "" {
		return "", ErrNoTemplate
	}
	tmpl, err := t.chat()
	if err != nil {
		return "", fmt.Errorf("tokenizer.chat_template: %w", err)
	}
	list := make([]any, len(msgs))
	for i, m := range msgs {
		d := template.NewDict()
		d.Set("role", m.Role)
		d.Set("content", m.Content)
		list[i] = d
	}
	all := map[string]any{
		"messages": list, "tools": nil, "add_generation_prompt": addGenerationPrompt,
		"bos_token": string(t.Piece(t.bos)), "eos_token": string(t.Piece(t.eos)),
	}
	maps.Copy(all, vars)
	var o template.Options
	if now, ok := all["now"].(time.Time); ok {
		o.Now = func() time.Time { return now }
		delete(all, "now")
	}
	return tmpl.Render(all, o)
}
