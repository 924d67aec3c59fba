package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archMistral3 is the family's general.architecture: Ministral 3 and Mistral Small 3. Older models of Mistral are of llama's.
const archMistral3 = "mistral3"

// readMistral3 reads and checks the header of a mistral3 model. With YaRN, cosines and sines are divided by
// 1 + 0.1·yarn_log_multiplier·ln(factor), and queries may be tempered.
func readMistral3(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archMistral3}
	c := readAttention(r)
	c.readFFN(r)
	r.refuse("attention.sliding_window")
	if key := r.key(yarnLogMultiplier); r.has(key) {
		m := r.positive(key, 10, 0)
		c.Yarn.Amplitude /= 1 + float64(float64(0.1*m)*kernels.Log64(c.RopeScale))
	}
	if key := r.key("attention.temperature_scale"); r.has(key) {
		c.Temper = Temper{Original: c.Yarn.Original, Scale: r.positive(key, 10, 0)}
		if c.Yarn.Original == 0 {
			r.fail(key, "is set without YaRN's original_context_length: not supported")
		}
	}
	return c, c.finishDense(set, r, []tensorSpec{{name: "rope_freqs.weight", cols: c.RopeDim / 2, optional: true}}, nil)
}

// loadMistral3 maps a layer. Its arithmetic is loadLlama's, with queries multiplied by Temper.at their position where the model
// asks for it.
func loadMistral3(ld *loader, c *Config, l int) (*layer, error) { return loadLlama(ld, c, l) }
