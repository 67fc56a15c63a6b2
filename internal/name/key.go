package name

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// MaxKey is the longest business key, in bytes.
const MaxKey = 64

// KeyID returns the biz_id of a business key: the first 64 bits of its SHA-256 without the sign bit, which not all languages have
// unsigned numbers for. In SQL it is CONV(LEFT(SHA2(key, 256), 16), 16, 10) & 9223372036854775807, see docs/sql.md.
func KeyID(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:8]) &^ (1 << 63)
}

// CheckKey returns what is wrong with a business key.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("biz_key is empty")
	case len(key) > MaxKey:
		return fmt.Errorf("biz_key has %d bytes: at most %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("biz_key %q is not UTF-8", key)
	case KeyID(key) == 0:
		return fmt.Errorf("biz_key %q has the biz_id 0", key)
	}
	return nil
}
