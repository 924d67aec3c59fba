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
	if c.Yarn.Original > 0 {
		m := r.notNegative(r.key(yarnLogMultiplier), 10)
		c.Yarn.Amplitude /= 1 + float64(float64(0.1*m)*kernels.Log64(c.RopeScale))
	}
	if key := r.key("attention.temperature_scale"); r.has(key) {
		if scale := r.notNegative(key, 10); scale > 0 {
			c.Temper = Temper{Original: c.Yarn.Original, Scale: scale}
		}
		if c.Temper.Scale > 0 && c.Yarn.Original == 0 {
			r.fail(key, "is set without YaRN's original_context_length: not supported")
		}
	}
	if key := r.key("attention.temperature_length"); r.countOr(key, maxContext, c.Yarn.Original) != c.Yarn.Original {
		r.fail(key, "is not original_context_length, %d", c.Yarn.Original)
	}
	return c, c.finishDense(set, r, []tensorSpec{{name: "rope_freqs.weight", cols: c.RopeDim / 2, optional: true}}, nil)
}

// loadMistral3 maps a layer. Its arithmetic is loadLlama's, with queries multiplied by Temper.at their position where the model
// asks for it.
func loadMistral3(ld *loader, c *Config, l int) (*layer, error) { return loadLlama(ld, c, l) }
