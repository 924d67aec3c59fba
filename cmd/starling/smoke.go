package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// smokeFiles is the smoke model: a tiny Llama-architecture model that counts,
// spells and adds, trained by tools/smoke.
//
//go:embed smoke
var smokeFiles embed.FS

const smokeName = "smoke/smoke.gguf"

// smokePrompt is what the demo asks the smoke model.
const smokePrompt = "Count from 25 to 36."

// writeSmoke writes the smoke model into dir and returns its path.
func writeSmoke(dir string) (string, error) {
	b, err := smokeFiles.ReadFile(smokeName)
	if err != nil {
		return "", fmt.Errorf("this build has no smoke model: %w", err)
	}
	path := filepath.Join(dir, "smoke.gguf")
	return path, os.WriteFile(path, b, 0o600)
}
