package main

import (
	_ "embed"
	"os"
	"path/filepath"
)

// smokeModel is the smoke model: a tiny Llama-architecture model that counts,
// spells and adds, trained by tools/smoke.
//
//go:embed smoke/smoke.gguf
var smokeModel []byte

// smokePrompt is what the demo asks the smoke model.
const smokePrompt = "Count from 25 to 36."

// writeSmoke writes the smoke model into dir and returns its path.
func writeSmoke(dir string) (string, error) {
	path := filepath.Join(dir, "smoke.gguf")
	return path, os.WriteFile(path, smokeModel, 0o600)
}
