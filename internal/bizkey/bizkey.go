// Package bizkey is the authority for how a business key that is no number becomes a biz_id. It is pure.
//
// The SQL of docs/sql.md computes the same, and so may programs in any language.
package bizkey

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Max is the longest key, in bytes.
const Max = 64

// ID returns the biz_id of a key: the first 64 bits of its SHA-256 without the sign bit, which not all languages have unsigned
// numbers for. In SQL it is CONV(LEFT(SHA2(key, 256), 16), 16, 10) & 9223372036854775807.
func ID(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:8]) &^ (1 << 63)
}

// Check returns what is wrong with a key.
func Check(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("biz_key is empty")
	case len(key) > Max:
		return fmt.Errorf("biz_key has %d bytes: at most %d", len(key), Max)
	case !utf8.ValidString(key):
		return fmt.Errorf("biz_key %q is not UTF-8", key)
	case ID(key) == 0:
		return fmt.Errorf("biz_key %q has the biz_id 0", key)
	}
	return nil
}
