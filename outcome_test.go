package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// marks are the exported functions whose errors ask for something, in all packages that targets import.
var marks = map[string]func(error) error{
	"tocsin.Bury":    tocsin.Bury,
	"tocsin.RetryIn": func(err error) error { return tocsin.RetryIn(time.Minute, err) },
	"tocsin.Snooze":  func(error) error { return tocsin.Snooze(time.Minute) },

	// Their words are tested in package sink, which this module's root must not import.
	"sink.Unavailable": nil,
	"sink.Unfit":       nil,
}

func TestAllMarksAreListed(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, dir := range []string{".", "sink", "node", "worker", "webhook"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && isMark(f.Type) {
					found[file.Name.Name+"."+f.Name.Name] = true
				}
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(marks)); !slices.Equal(got, want) {
		t.Errorf("functions that make an error of a parameter are %q, and %q are tested", got, want)
	}
}

// isMark reports whether a function makes an error of an error or a duration, and does nothing else.
func isMark(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Results.List) != 1 {
		return false
	}
	if of, ok := f.Results.List[0].Type.(*ast.Ident); !ok || of.Name != "error" {
		return false
	}
	return !slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		switch of := p.Type.(type) {
		case *ast.Ident:
			return of.Name != "error"
		case *ast.SelectorExpr:
			return of.Sel.Name != "Duration"
		}
		return true
	})
}

type silent struct{}

func (*silent) Error() string { return "" }

type rude struct{ value any }

func (r rude) Error() string { panic(r.value) }

type pointed struct{ text string }

func (p *pointed) Error() string { return p.text }

// atRunTime returns an error of package runtime.
func atRunTime() (err any) {
	defer func() { err = recover() }()
	zero := 0
	return 1 / zero
}

// wrapping are the ways in which an error gets words around it, or others beside it; each contains the word.
var wrapping = map[string]func(error) error{
	"before":       func(err error) error { return fmt.Errorf("charge 7: %w", err) },
	"after":        func(err error) error { return fmt.Errorf("%w: charge 7", err) },
	"twice":        func(err error) error { return fmt.Errorf("order 9: %w", fmt.Errorf("charge 7: %w", err)) },
	"joined":       func(err error) error { return errors.Join(errors.New("charge 7"), err) },
	"joined after": func(err error) error { return errors.Join(err, nil, errors.New("charge 7")) },
	"two verbs":    func(err error) error { return fmt.Errorf("%w and %w", errors.New("charge 7"), err) },
	"a cause": func(err error) error {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(fmt.Errorf("charge 7: %w", err))
		return context.Cause(ctx)
	},
}

// Whatever stands around a mark, or inside it, is in the reason; the mark counts all the same.
func TestAReasonIsTheWholeText(t *testing.T) {
	t.Parallel()
	for name, mark := range marks {
		if mark == nil {
			continue
		}
		want, in, _ := tocsin.AsOutcome(mark(errors.New("declined")))
		for way, wrap := range wrapping {
			for outside, err := range map[string]error{"outside": wrap(mark(errors.New("declined"))), "inside": mark(wrap(errors.New("declined"))), "both": wrap(mark(wrap(errors.New("declined"))))} {
				if name == "tocsin.Snooze" && outside == "inside" {
					continue
				}
				verb, delay, reason := tocsin.AsOutcome(err)
				if verb != want || delay != in || reason != err.Error() || !strings.Contains(reason, "charge 7") || name != "tocsin.Snooze" && !strings.Contains(reason, "declined") {
					t.Errorf("%s, %s %s: %s in %s: %q", name, outside, way, verb, delay, reason)
				}
			}
		}
	}
	for reason, err := range map[string]error{
		"a: b":                  tocsin.Bury(fmt.Errorf("a: %w", tocsin.RetryIn(time.Second, errors.New("b")))),
		"c: d":                  tocsin.RetryIn(time.Second, fmt.Errorf("c: %w", tocsin.Bury(errors.New("d")))),
		"wait: snooze 1s\ngone": errors.Join(fmt.Errorf("wait: %w", tocsin.Snooze(time.Second)), tocsin.Bury(errors.New("gone"))),
	} {
		if verb, _, got := tocsin.AsOutcome(err); verb != tocsin.Buried || got != reason {
			t.Errorf("%s: %q, want %q", verb, got, reason)
		}
	}
	if verb, in, reason := tocsin.AsOutcome(tocsin.Snooze(time.Second)); verb != tocsin.Snoozed || in != time.Second || reason != "" {
		t.Errorf("%s %s %q", verb, in, reason)
	}
}

// A failure always has a reason: an error without words is named by its type, and one that can't be read by what happened.
func TestAFailureAlwaysHasAReason(t *testing.T) {
	t.Parallel()
	const none = "an error of type "
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":                        {nil, "no reason given"},
		"an empty text":              {errors.New(""), none + "*errors.errorString, without a text"},
		"white space":                {errors.New(" \n\t"), none + "*errors.errorString, without a text"},
		"nothing that can be seen":   {errors.New("\u200b\u2060 \ufeff"), none + "*errors.errorString, without a text"},
		"a type without words":       {&silent{}, none + "*tocsin_test.silent, without a text"},
		"that, wrapped":              {fmt.Errorf("%w", &silent{}), none + "*tocsin_test.silent, without a text"},
		"joined":                     {errors.Join(errors.New(""), errors.New("")), none + "*errors.joinError, without a text"},
		"a nil of a type":            {(*pointed)(nil), "that can't be read: runtime error: invalid memory address or nil pointer dereference"},
		"it panics with a text":      {rude{"oh"}, "that can't be read: oh"},
		"it panics with nil":         {rude{nil}, "that can't be read: panic called with nil argument"},
		"it panics with a struct":    {rude{struct{ n int }{7}}, "that can't be read: {7}"},
		"it panics with such a one":  {rude{rude{"again"}}, "that can't be read: "},
		"it panics at an error":      {rude{errors.New("why")}, "that can't be read: why"},
		"it panics at run time":      {rude{atRunTime()}, "tocsin_test.rude that can't be read: runtime error: integer divide by zero"},
		"several lines":              {errors.New("one\ntwo"), "one\ntwo"},
		"no UTF-8, and character 0":  {errors.New("a\xff\x00b"), "a\xff\x00b"}, // stored as \xff\x00: see name.Text
		"the end of a context":       {context.DeadlineExceeded, "context deadline exceeded"},
		"a very long text, in whole": {errors.New(strings.Repeat("鐘", 100_000)), strings.Repeat("鐘", 100_000)},
	} {
		for how, err := range map[string]error{"returned": c.err, "buried": tocsin.Bury(c.err), "retried": tocsin.RetryIn(time.Second, c.err)} {
			if err == nil {
				continue
			}
			verb, in, reason := tocsin.AsOutcome(err)
			if !strings.Contains(reason, c.want) {
				t.Errorf("%s, %s: %.200q, want %.200q", name, how, reason, c.want)
			}
			if want := map[string]tocsin.Verb{"returned": tocsin.Retried, "buried": tocsin.Buried, "retried": tocsin.Retried}[how]; verb != want || how == "retried" && in != time.Second {
				t.Errorf("%s, %s: %s in %s", name, how, verb, in)
			}
		}
	}
}
