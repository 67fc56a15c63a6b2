// Package whsec reads the secrets that sign callbacks, in the form of Standard
// Webhooks: whsec_ and the base64 of a key. On failure its errors never quote a
// secret.
package whsec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	prefix = "whsec_"
	least  = 24 // bytes of a key, as Standard Webhooks demands
)

// Parse returns what signs and verifies with a secret. A short key, even more the
// empty one of a bare whsec_, is refused: anybody could guess it.
func Parse(secret string) (*standard.Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, prefix))
	switch {
	case err != nil:
		return nil, errors.New("want whsec_ and base64")
	case len(key) < least:
		return nil, fmt.Errorf("its key has %d bytes, fewer than %d: make one with `openssl rand -base64 32`, and put whsec_ before it", len(key), least)
	}
	return standard.NewWebhookRaw(key)
}
