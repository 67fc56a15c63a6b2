package webhook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// secretCap is more than the size of any secret.
const secretCap = 4 << 10

// Secrets tells where to find the secrets that policies name.
type Secrets struct {
	Dir    string              // a file for each secret, with its name, as Kubernetes and systemd mount them; "": none
	Getenv func(string) string // asked for secrets that are not in Dir
}

// Check reports why Dir can't be used; nil if there is none.
func (s Secrets) Check() error {
	if s.Dir == "" {
		return nil
	}
	info, err := os.Stat(s.Dir)
	switch {
	case !filepath.IsAbs(s.Dir):
		return fmt.Errorf("secrets directory %q: want an absolute path", s.Dir)
	case err != nil:
		return fmt.Errorf("secrets directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("secrets directory %s: it is a file; each secret is a file in a directory", s.Dir)
	}
	return nil
}

// Value reads a secret. Its errors name the place, and never the content.
func (s Secrets) Value(name string) (string, error) {
	if s.Dir != "" {
		value, err := readSecret(filepath.Join(s.Dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
	}
	if value := s.Getenv(name); value != "" {
		return value, nil
	}
	if s.Dir == "" {
		return "", fmt.Errorf("the environment variable %s with the webhook's secret is not set", name)
	}
	return "", fmt.Errorf("the webhook's secret %s is neither a file in %s nor an environment variable", name, s.Dir)
}

// readSecret reads a file of one line.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("read a webhook's secret: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("webhook's secret %s: not a file", path)
	case info.Size() > secretCap:
		return "", fmt.Errorf("webhook's secret %s: %d bytes, more than %d", path, info.Size(), secretCap)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a webhook's secret: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return "", fmt.Errorf("webhook's secret %s: want one line, whsec_ and base64, with no blank", path)
	}
	return value, nil
}
