package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"github.com/alecthomas/kong"
)

// defaultDataDir returns the data folder by the XDG rules, or what stands for
// them on other systems.
func defaultDataDir() string {
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "starling")
	}
	if goruntime.GOOS == "windows" {
		if d := os.Getenv("LocalAppData"); d != "" {
			return filepath.Join(d, "starling")
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "starling-data" // no home: beside the caller
	}
	return filepath.Join(home, ".local", "share", "starling")
}

// defaultConfigPath returns where the settings file is looked for.
func defaultConfigPath() string {
	if d := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "starling", "config.json")
	}
	if goruntime.GOOS == "windows" {
		if d, err := os.UserConfigDir(); err == nil {
			return filepath.Join(d, "starling", "config.json")
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "starling-config.json"
	}
	return filepath.Join(home, ".config", "starling", "config.json")
}

// configFile is the path of a settings file. Given, the file must exist.
type configFile string

// defaultConfig adds the settings file as a source of flags: the one that is
// asked for, else the default one if it is there.
func defaultConfig(k *kong.Kong, c *kong.Context) error {
	path, asked := defaultConfigPath(), false
	for _, f := range c.Flags() {
		if f.Name != "config" {
			continue
		}
		if v, ok := c.FlagValue(f).(configFile); ok && v != "" {
			path, asked = string(v), true
		} else if v := os.Getenv("STARLING_CONFIG"); v != "" {
			path, asked = v, true
		}
	}
	values, err := readConfig(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return err
	}
	known := map[string]bool{}
	if err := kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			known[f.Name] = true
		}
		return next(nil)
	}); err != nil {
		return err
	}
	for name := range values {
		if !known[name] || name == "config" || name == "help" {
			return fmt.Errorf("settings file %s: no setting is called %q: keys are flag names without dashes, such as \"data\"", path, name)
		}
	}
	c.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
		for _, env := range f.Envs {
			if _, set := os.LookupEnv(env); set {
				return nil, nil // the environment wins
			}
		}
		if v, ok := values[f.Name]; ok {
			return v, nil
		}
		return nil, nil
	}))
	return nil
}

// maxConfig bounds a settings file in bytes.
const maxConfig = 1 << 20

// readConfig reads a settings file: an object whose values are strings,
// numbers, booleans or lists of them. It returns them as on a command line.
func readConfig(path string) (map[string]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	if st.Size() > maxConfig || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("settings file %s: not a file of at most %d bytes", path, maxConfig)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return parseConfig(path, b)
}

// parseConfig is readConfig of a file's bytes.
func parseConfig(path string, b []byte) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("settings file %s: %w: write a JSON object such as {\"data\": \"/srv/starling\"}", path, err)
	}
	values := map[string]string{}
	for name, r := range raw {
		var list []json.RawMessage
		if json.Unmarshal(r, &list) != nil {
			list = []json.RawMessage{r}
		}
		var words []string
		for _, item := range list {
			word, err := scalar(item)
			if err != nil {
				return nil, fmt.Errorf("settings file %s: %q: %w", path, name, err)
			}
			words = append(words, word)
		}
		values[name] = strings.Join(words, ",")
	}
	return values, nil
}

// scalar returns a JSON string, number or boolean as text.
func scalar(r json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(r, &s) == nil && string(r) != "null" {
		return s, nil
	}
	switch text := string(r); {
	case text == "true", text == "false", text != "" && strings.ContainsRune("-0123456789", rune(text[0])):
		return text, nil
	}
	return "", errors.New("its value is neither a string, a number, true or false, nor a list of these")
}
