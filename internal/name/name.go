// Package name is the authority for how things may be named. A name stands between
// the slashes of an etcd key, in a column of 64 characters, in file names and on
// command lines:
//
//	letters, digits, ".", "_" and "-", a letter or digit first, at most 64
//
//	what                            by
//	cluster id, identity, group     Check
//	node                            CheckNode: at most 40, as ids get a random end
//	biz type                        CheckLower: without capital letters
//	MySQL server                    CheckShown: any text of one line, as it is only shown
//	business key                    CheckKey: any UTF-8, at most 64 bytes
//
// A default name is adapted to this form: see OfHost. A business key that is no number becomes a biz_id: see KeyID.
// It is also the authority for texts that stand for keys (KeyText) and times (ReadTime).
package name

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The most characters of a name.
const (
	Max     = 64
	MaxNode = 40 // of a node: "-sweep-" or a hyphen and 8 random characters follow in an id
)

var (
	form  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	lower = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)
	unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// Check returns what is wrong with a name. The message begins with what, for example
// "cluster id".
func Check(what, name string) error { return check(what, name, "letters", form, Max) }

// CheckNode is Check for the name of a node, without the random end of its id.
func CheckNode(what, name string) error { return check(what, name, "letters", form, MaxNode) }

// idEnd is the length of the random end of a node's id.
const idEnd = 8

var endText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns an id of a node, "host-k3j2h4ax": a restarted node is a new one.
func NewID(node string) string {
	var b [idEnd * 5 / 8]byte
	_, _ = rand.Read(b[:]) // never fails
	return node + "-" + endText.EncodeToString(b[:])
}

// CheckLower is Check for names without capital letters, where names must differ in
// more than case.
func CheckLower(what, name string) error { return check(what, name, "lower-case letters", lower, Max) }

func check(what, name, letters string, form *regexp.Regexp, most int) error {
	if form.MatchString(name) && len(name) <= most {
		return nil
	}
	return fmt.Errorf("%s %q: use %s, digits, '.', '_' and '-', a letter or digit first, at most %d", what, name, letters, most)
}

// CheckShown returns what is wrong with a name that is only shown.
func CheckShown(what, name string) error {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s %q: use one line of printable text", what, name)
	}
	return nil
}

// Shown returns a name for a message of one line: quoted unless it is such text.
func Shown(name string) string {
	if CheckShown("", name) != nil {
		return strconv.Quote(name)
	}
	return name
}

// OfHost turns a host name into the name of a node. A valid one is kept. To others it
// appends a hash of the whole name, which keeps hosts with the same beginning apart.
func OfHost(host string) string {
	if CheckNode("", host) == nil {
		return host
	}
	hash := sha256.Sum256([]byte(host))
	end := "-" + hex.EncodeToString(hash[:4])
	begin := strings.TrimLeft(unfit.ReplaceAllString(host, "-"), "._-")
	if begin == "" {
		begin = "host"
	}
	return begin[:min(len(begin), MaxNode-len(end))] + end
}

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
