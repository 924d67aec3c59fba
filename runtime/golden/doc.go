// Package golden compares the engine with a reference implementation: a folder holds a model, model.gguf, and what the
// reference computed with it, expected.json, as tools outside this repository write them.
package golden
