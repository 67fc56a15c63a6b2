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
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
	env := map[string]string{"BOTH": secretB, "ENV": secretB, "EMPTY": secretB}
	for name, want := range map[string]string{
		"PLAIN": secretA, "NEWLINE": secretA, "WINDOWS": secretA, "LINK": secretA, "BOTH": secretA, "ENV": secretB,
		"EMPTY": "! want one line", "TWO_LINES": "! want one line", "BLANK": "! want one line", "LONG": "! more than",
		"FOLDER": "! not a file", "NONE": "! neither a file in " + dir + " nor an environment variable",
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

func TestASecretsDirectoryIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"": "", dir: "", "secrets": "absolute path", filepath.Join(dir, "none"): "no such file", file: "it is a file",
	} {
		err := Secrets{Dir: given}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", given, err, want)
		}
	}
}
