package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// family is one architecture of models. Each has a file, arch_*.go, with its header, its tensors and its arithmetic.
type family struct {
	arch string // general.architecture
	// read makes a Config of a header, or refuses what load cannot run as the model's makers do.
	read func(set *gguf.Set) (Config, error)
	// load maps layer l of a model that read has approved.
	load func(ld *loader, c *Config, l int) (*layer, error)
}

// families are all that can be run.
var families = []family{
	{archLlama, readLlama, loadLlama},
	{archQwen2, readQwen2, loadQwen2},
	{archQwen3, readQwen3, loadQwen3},
	{archQwen3MoE, readQwen3MoE, loadQwen3MoE},
	{archGemma3, readGemma3, loadGemma3},
	{archDeepSeek2, readDeepSeek2, loadDeepSeek2},
	{archGLM4MoE, readGLM4MoE, loadGLM4MoE},
	{archQwen35, readQwen35, loadQwen35},
	{archQwen35MoE, readQwen35MoE, loadQwen35},
	{archGptOss, readGptOss, loadGptOss},
	{archPhi3, readPhi3, loadPhi3},
	{archMistral3, readMistral3, loadMistral3},
}

// familyOf returns the family of a general.architecture, or an error that says which there are.
func familyOf(arch string) (*family, error) {
	if i := slices.IndexFunc(families, func(f family) bool { return f.arch == arch }); i >= 0 {
		return &families[i], nil
	}
	var names []string
	for _, f := range families {
		names = append(names, f.arch)
	}
	return nil, fmt.Errorf("architecture %s is not supported (supported: %s)", quote(arch), strings.Join(names, ", "))
}
