package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// EnvPath names the variable with the path of the config file.
const EnvPath = "TOCSIN_CONFIG"

// DefaultPath is where the config is looked for at last.
const DefaultPath = "tocsin.yaml"

// Load reads the file at path; "" takes $TOCSIN_CONFIG, else ./tocsin.yaml.
func Load(path string) (File, error) { return load(path, os.LookupEnv) }

// LoadToPlan is Load for a program that connects to nothing: a variable that is not set stands for a made-up value.
func LoadToPlan(path string) (File, error) {
	return load(path, func(name string) (string, bool) {
		if value, ok := os.LookupEnv(name); ok {
			return value, true
		}
		return name + "-is-not-set-here", true
	})
}

func load(path string, lookup func(string) (string, bool)) (File, error) {
	chosen := path
	if chosen == "" {
		chosen = os.Getenv(EnvPath)
	}
	if chosen == "" {
		chosen = DefaultPath
	}
	text, err := os.ReadFile(chosen)
	if errors.Is(err, fs.ErrNotExist) && chosen == DefaultPath && path == "" {
		return File{}, fmt.Errorf("no config: give --config, set $%s or write ./%s (configs/dev.yaml is an example)", EnvPath, DefaultPath)
	}
	if err != nil {
		return File{}, fmt.Errorf("read the config: %w", err)
	}
	return Parse(text, chosen, lookup)
}

// Parse reads the text of a config file. name stands in the messages, of which
// there is one line for each mistake; lookup gives environment variables.
func Parse(text []byte, name string, lookup func(string) (string, bool)) (File, error) {
	source, err := yamlfile.Parse(text, name)
	if err != nil {
		return File{}, err
	}
	var f File
	if err := source.Decode(&f); err != nil {
		return File{}, err
	}
	f = f.withDefaults()
	if tokens := "$.node.api.tokens"; source.Null(tokens) { // it would allow everybody
		return File{}, source.Errorf(tokens, "node.api.tokens has no value: write [] if no token is to be valid")
	}
	found := f.expand(lookup)
	if len(found.Found) == 0 {
		found = f.faults()
	}
	if err := source.Place(found.Found); err != nil {
		return File{}, err
	}
	return f, nil
}

// Validate reports all that is wrong, one line each. It is pure.
func (f File) Validate() error {
	faults := f.faults()
	return faults.Err()
}
