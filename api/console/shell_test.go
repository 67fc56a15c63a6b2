package console

import (
	"os/exec"
	"strings"
	"testing"
)

// A shell passes on each word of a command as it is, and runs nothing of it.
func TestAShellTakesEachWordAsItIs(t *testing.T) {
	t.Parallel()
	v := &visit{}
	for _, word := range []string{
		"report.daily", "a b", "--all", "$(exit 9)", "`exit 9`", "--$(exit 9)", `o'clock; exit 9`, `\`, `\'`, "'", `"$HOME"`, "!!", "*", "~", "#", "a\nb", "\t", "订单 1",
	} {
		command := "printf %s " + quoted(word)
		if shown := v.Shown(command); shown != command {
			t.Errorf("%q is shown as %s", command, shown)
		}
		got, err := exec.CommandContext(t.Context(), "bash", "-c", command).Output()
		if err != nil || string(got) != word {
			t.Errorf("%s prints %q, %v, want %q", command, got, err, word)
		}
	}
	if got := words("tocsin task list", "--status", "--$(exit 9)", "--type", ""); got != "tocsin task list --status '--$(exit 9)'" || strings.Contains(got, "type") {
		t.Error(got)
	}
}
