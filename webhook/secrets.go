package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// leastKey is how many bytes a key must have, as Standard Webhooks demands.
const leastKey = 24

// parseSecrets returns what signs and verifies with each secret. A short key, even more the
// empty one of a bare whsec_, is refused: anybody could guess it. Errors never quote the secret.
func parseSecrets(secrets []string) (all []*standard.Webhook, err error) {
	for i, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		switch {
		case err != nil:
			return nil, fmt.Errorf("webhook secret %d: want whsec_ and base64", i+1)
		case len(key) < leastKey:
			return nil, fmt.Errorf("webhook secret %d: its key has %d bytes, fewer than %d: make one with `openssl rand -base64 32`, and put whsec_ before it", i+1, len(key), leastKey)
		}
		w, err := standard.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("webhook secret %d: %w", i+1, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// secretCap is more than the size of any secret.
const secretCap = 4 << 10

// credentialsVar names the directory where systemd puts what LoadCredential= of a unit says.
const credentialsVar = "CREDENTIALS_DIRECTORY"

// Secrets tells where to find the secrets that policies name.
type Secrets struct {
	Dir    string              // a file for each secret, with its name, as Kubernetes mounts them; "": none
	Getenv func(string) string // asked for $CREDENTIALS_DIRECTORY, a directory like Dir, and for secrets that are in neither
}

// Value reads a secret. Its errors name the place, and never the content.
func (s Secrets) Value(name string) (string, error) {
	var looked []string
	for _, dir := range []string{s.Dir, s.Getenv(credentialsVar)} {
		if dir == "" {
			continue
		}
		value, err := readSecret(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			dir += ", which does not exist,"
		}
		looked = append(looked, dir)
	}
	if value := s.Getenv(name); value != "" {
		return value, nil
	}
	if len(looked) == 0 {
		return "", fmt.Errorf("the environment variable %s with the webhook's secret is not set", name)
	}
	return "", fmt.Errorf("the webhook's secret %s is neither a file in %s nor an environment variable", name, strings.Join(looked, " or "))
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
