// Package apitoken is the authority for the tokens of the HTTP API: their form, what the config keeps of them, and what they
// allow; and for what groups of people may do in the console.
//
//	toc_ID_SECRET    given once to whoever calls the API
//	SHA-256 of it    in the config, beside the id, a name, the scope, the biz types and the expiry
//
// A token that is wrong in any way is not found; nothing says why.
package apitoken

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/name"
)

// Scope is what a token may do.
type Scope string

// The scopes. Each allows all that the scopes before it allow, except Work, which allows nothing else.
const (
	Read    Scope = "read"    // look up tasks, schedules, runs, biz types, nodes, counts
	Work    Scope = "work"    // nothing but to take the tasks of pull types, and settle them
	Write   Scope = "write"   // to read and work, and to add, cancel and reschedule tasks, create, change, run and delete schedules
	Operate Scope = "operate" // and redrive and bury tasks, backfill schedules, pause and resume biz types
)

var scopes = []Scope{Read, Work, Write, Operate}

// Allows reports whether a token of this scope may do what needs the other.
func (s Scope) Allows(need Scope) bool {
	return s == need || s != Work && slices.Index(scopes, s) >= slices.Index(scopes, need)
}

// Token is what the config keeps of a token.
type Token struct {
	ID       string    `yaml:"id" json:"id"`                              // the part of the token after toc_
	Name     string    `yaml:"name" json:"name"`                          // of its holder, for the log
	SHA256   string    `yaml:"sha256" json:"sha256"`                      // of the whole token, 64 hexadecimal digits
	Scope    Scope     `yaml:"scope" json:"scope"`                        // read, write or operate
	BizTypes []string  `yaml:"biz_types" json:"biz_types"`                // names, in which * stands for any text; none: no biz type
	Expires  time.Time `yaml:"expires,omitempty" json:"expires,omitzero"` // zero: never
}

const (
	prefix     = "toc"
	idBytes    = 5
	secretSize = 32
)

var (
	text    = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	idForm  = regexp.MustCompile(`^[a-z2-7]{8}$`)
	glob    = regexp.MustCompile(`^[a-z0-9*][a-z0-9*._-]{0,63}$`)
	sumForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// New makes a token, and returns it beside what the config is to keep of it.
func New(t Token) (string, Token, error) {
	id, secret := make([]byte, idBytes), make([]byte, secretSize)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	t.ID = text.EncodeToString(id)
	token := prefix + "_" + t.ID + "_" + text.EncodeToString(secret)
	t.SHA256 = sumOf(token)
	return token, t, t.Check()
}

func sumOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Check returns what is wrong with a token of the config, in one line.
func (t Token) Check() error {
	switch {
	case !idForm.MatchString(t.ID):
		return fmt.Errorf("token id %q: want 8 characters, as `tocsin token new` prints them", t.ID)
	case !sumForm.MatchString(t.SHA256):
		return fmt.Errorf("token %s: sha256: want 64 hexadecimal digits, as `tocsin token new` prints them", t.ID)
	}
	if err := checkRights("token "+t.ID, scopes, t.Scope, t.BizTypes); err != nil {
		return err
	}
	return name.Check("token "+t.ID+": name", t.Name)
}

// checkRights returns what is wrong with the scope, one of some, and the biz types of a token or a group.
func checkRights(whose string, some []Scope, scope Scope, bizTypes []string) error {
	switch {
	case !slices.Contains(some, scope):
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(some), " ", ", "), "[]")
		return fmt.Errorf("%s: scope %q: use %s", whose, scope, strings.Replace(text, ", operate", " or operate", 1))
	case len(bizTypes) == 0:
		return fmt.Errorf("%s: biz_types is empty: name biz types, such as order.*, or * for all", whose)
	}
	for _, pattern := range bizTypes {
		if !glob.MatchString(pattern) {
			return fmt.Errorf("%s: biz type %q: use a name, or one with *, such as order.*", whose, pattern)
		}
	}
	return nil
}

// Sees reports whether the token is for a biz type.
func (t Token) Sees(bizType string) bool {
	return slices.ContainsFunc(t.BizTypes, func(pattern string) bool {
		matches, err := path.Match(pattern, bizType)
		return err == nil && matches
	})
}

// SeesAll reports whether the token is for all biz types, tasks without a known one too.
func (t Token) SeesAll() bool { return slices.Contains(t.BizTypes, "*") }

// Set holds the tokens of a config by id.
type Set map[string]Token

// NewSet checks tokens. The error has a line for each that is wrong.
func NewSet(tokens []Token) (Set, error) {
	set := Set{}
	var errs []error
	for _, t := range tokens {
		if err := t.Check(); err != nil {
			errs = append(errs, err)
		} else if _, twice := set[t.ID]; twice {
			errs = append(errs, fmt.Errorf("token %s: the id stands here twice", t.ID))
		}
		set[t.ID] = t
	}
	return set, errors.Join(errs...)
}

// IDOf returns the id of what may be a token, and nothing of its secret; "" if it has not the form of one.
func IDOf(token string) string {
	if parts := strings.Split(token, "_"); len(parts) == 3 && parts[0] == prefix && idForm.MatchString(parts[1]) {
		return parts[1]
	}
	return ""
}

// nobody is compared with when no token has the id, so that the answer takes the same time.
var nobody = Token{SHA256: strings.Repeat("0", 64)}

// Find returns the token that was given, unless it is unknown or past its expiry. The comparison takes the same time whatever
// the token given.
func (s Set) Find(token string, now time.Time) (Token, bool) {
	parts := strings.Split(token, "_")
	if len(parts) != 3 || parts[0] != prefix {
		return Token{}, false
	}
	t, known := s[parts[1]]
	if !known {
		t = nobody
	}
	same := subtle.ConstantTimeCompare([]byte(sumOf(token)), []byte(t.SHA256)) == 1
	return t, known && same && (t.Expires.IsZero() || now.Before(t.Expires))
}
