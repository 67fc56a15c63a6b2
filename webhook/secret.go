package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretPrefix = "whsec_"
	leastKey     = 24 // bytes of a key, as Standard Webhooks demands
)

// ParseSecret returns what signs and verifies with a secret. A short key, even more the
// empty one of a bare whsec_, is refused: anybody could guess it. Its errors never quote the secret.
func ParseSecret(secret string) (*standard.Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	switch {
	case err != nil:
		return nil, errors.New("want whsec_ and base64")
	case len(key) < leastKey:
		return nil, fmt.Errorf("its key has %d bytes, fewer than %d: make one with `openssl rand -base64 32`, and put whsec_ before it", len(key), leastKey)
	}
	return standard.NewWebhookRaw(key)
}
