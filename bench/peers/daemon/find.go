package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Missing is a program that is not installed.
type Missing struct{ Program, Package string }

func (e Missing) Error() string {
	return fmt.Sprintf("%s not found: `make bench-peers` installs it where apt-get can (package %s)", e.Program, e.Package)
}

// The folders beside PATH; the newest PostgreSQL comes first.
var (
	sbin       = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"}
	postgreses = "/usr/lib/postgresql/*/bin"
)

// find returns the program's path.
func find(program, pkg string) (string, error) {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), sbin...)
	versions, _ := filepath.Glob(postgreses) // the pattern is a good one
	slices.Reverse(versions)
	for _, dir := range append(dirs, versions...) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", Missing{program, pkg}
}

// version is the first line that the program says when it is asked for it.
func version(path, flag string) (string, error) {
	out, err := exec.Command(path, flag).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, flag, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}
