package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestForeignTextCantSteerTheTerminal, and JSON has the same meaning.
func TestForeignTextCantSteerTheTerminal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	print := func(text string) string {
		t.Helper()
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		if n, err := (printed{file}).Write([]byte(text)); err != nil || n != len(text) {
			t.Fatalf("%d, %v", n, err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	for text, want := range map[string]string{
		"a line\n\tand\tcells é 漢字 👍\n":              "a line\n\tand\tcells é 漢字 👍\n",
		"\x1b]0;title\x07\x1b[2Jgone\r":              `\u001b]0;title\u0007\u001b[2Jgone\u000d`,
		"user\u202e\u2066gpj.exe\u2069 \u200f\u061c": `user\u202e\u2066gpj.exe\u2069 \u200f\u061c`,
		"\u009b2J \x9b \x7f \xff":                    `\u009b2J \x9b \u007f \xff`,
	} {
		if got := print(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	const payload = "\x1b[2J\u202e\u009b\x7f é"
	text, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(print(string(text))), &got); err != nil || got != payload {
		t.Errorf("%q, %v", got, err)
	}
}
