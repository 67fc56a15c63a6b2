package name

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyBytes begins the text of a key in hex digits, as PostgreSQL writes bytes.
const keyBytes = `\x`

// KeyText returns a key, which may be any bytes, as text of UTF-8: as it is, or as \x and hex digits. ReadKey reads both.
func KeyText(key string) string {
	if utf8.ValidString(key) && !strings.HasPrefix(key, keyBytes) && !strings.HasPrefix(key, "\x00") {
		return key
	}
	return keyBytes + hex.EncodeToString([]byte(key))
}

// KeyLine is KeyText for a line that people read and copy: what they could not see in it is in hex digits too.
func KeyLine(key string) string {
	unseen := func(r rune) bool { return !unicode.IsPrint(r) && !unicode.Is(unicode.Join_Control, r) } // which words and emoji need
	if strings.TrimSpace(key) != key || strings.ContainsFunc(key, unseen) {
		return keyBytes + hex.EncodeToString([]byte(key))
	}
	return KeyText(key)
}

// ReadKey returns the key of a KeyText or KeyLine.
func ReadKey(text string) (string, error) {
	digits, isBytes := strings.CutPrefix(text, keyBytes)
	if !isBytes {
		return text, nil
	}
	key, err := hex.DecodeString(digits)
	if err != nil || len(key) == 0 {
		return "", fmt.Errorf(`%q: a key that begins with \x has pairs of hex digits behind that, which stand for its bytes`, text)
	}
	return string(key), nil
}
