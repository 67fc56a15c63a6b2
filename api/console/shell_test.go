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
		"report.daily", "a b", "--all", "$(exit 9)", "`exit 9`", "--$(exit 9)", `o'clock; exit 9`, `\`, `\'`, "'", `"$HOME"`, "!!", "*", "~", "#", "a\nb", "\t", "\x1b[31m'", "\u202egnp.exe", "订单\u3164", "订单 1",
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

func TestACharacterThatCannotBeSeenIsShownByItsNumber(t *testing.T) {
	t.Parallel()
	v := &visit{}
	for text, want := range map[string]string{
		"a\u202eb": `a\u202eb`, "a\u200bb": `a\u200bb`, "a\u3164b": `a\u3164b`, "a\u115fb": `a\u115fb`, "a\u2800b": `a\u2800b`, "a\ufe0fb": `a\ufe0fb`, "a\u034fb": `a\u034fb`,
		"a\U000e0101b": `a\U000e0101b`, "a\u00a0b": `a\u00a0b`, "订单 é\n\t\U0001f514": "订单 é\n\t\U0001f514",
	} {
		if got := v.Shown(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
