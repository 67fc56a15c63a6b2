package webhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASecretIsReadFromItsFileElseFromTheEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	credentials := t.TempDir()
	writeTo := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { writeTo(dir, name, text) }
	writeTo(credentials, "CREDENTIAL", secretA)
	writeTo(credentials, "BOTH", secretB)
	writeTo(credentials, "FOREIGN", "no secret")
	write("PLAIN", secretA)
	write("NEWLINE", secretA+"\n")
	write("WINDOWS", secretA+"\r\n")
	write("BOTH", secretA)
	write("EMPTY", "\n")
	write("TWO_LINES", secretA+"\n"+secretB+"\n")
	write("BLANK", secretA+" ")
	write("LONG", strings.Repeat("x", secretCap+1))
	if err := os.Mkdir(filepath.Join(dir, "FOLDER"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("PLAIN", filepath.Join(dir, "LINK")); err != nil { // as Kubernetes does it
		t.Fatal(err)
	}
	env := map[string]string{"BOTH": secretB, "ENV": secretB, "EMPTY": secretB, "CREDENTIAL": secretB, "CREDENTIALS_DIRECTORY": credentials}
	for name, want := range map[string]string{
		"PLAIN": secretA, "NEWLINE": secretA, "WINDOWS": secretA, "LINK": secretA, "BOTH": secretA, "ENV": secretB, "CREDENTIAL": secretA,
		"EMPTY": "! want one line", "TWO_LINES": "! want one line", "BLANK": "! want one line", "LONG": "! more than",
		"FOLDER": "! not a file", "NONE": "! neither a file in " + dir + " or " + credentials + " nor an environment variable",
		"FOREIGN": "! want one line",
	} {
		value, err := Secrets{Dir: dir, Getenv: func(name string) string { return env[name] }}.Value(name)
		part, refused := strings.CutPrefix(want, "! ")
		switch {
		case !refused && (err != nil || value != want):
			t.Errorf("%s: %v", name, err)
		case refused && (err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v, want %q", name, err, part)
		case refused && (strings.Contains(err.Error(), "whsec_M") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: the error tells the secret, or has several lines: %v", name, err)
		}
	}
}

func TestWhereASecretIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gone, file := filepath.Join(dir, "gone"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"":   "the environment variable NONE with the webhook's secret is not set",
		dir:  "the webhook's secret NONE is neither a file in " + dir + " nor an environment variable",
		gone: "the webhook's secret NONE is neither a file in " + gone + ", which does not exist, nor an environment variable",
		file: "read a webhook's secret: stat " + file + "/NONE: not a directory",
	} {
		if _, err := (Secrets{Dir: given, Getenv: func(string) string { return "" }}).Value("NONE"); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", given, err, want)
		}
	}
}
