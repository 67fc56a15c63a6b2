package store

import "strings"

// statement is a text of sql.go, cut at its {slots} once, so that rendering is
// copying. Its name, as in metrics and in the server's process list, is the
// word behind "tocsin" in its comment.
type statement struct {
	name  string
	texts []string // one more than slots
	slots []string
}

// prepare cuts a text at its slots and takes out the line breaks.
func prepare(text string) statement {
	text = strings.Join(strings.Fields(text), " ")
	_, rest, _ := strings.Cut(text, "/* tocsin ")
	name, _, _ := strings.Cut(rest, " */")
	st := statement{name: name}
	for {
		before, after, found := strings.Cut(text, "{")
		st.texts = append(st.texts, before)
		if !found {
			return st
		}
		slot, rest, _ := strings.Cut(after, "}")
		st.slots = append(st.slots, slot)
		text = rest
	}
}

// render appends the text to b; fill appends what stands in a slot.
func (st statement) render(b []byte, fill func(b []byte, slot string) []byte) []byte {
	for i, slot := range st.slots {
		b = append(b, st.texts[i]...)
		b = fill(b, slot)
	}
	return append(b, st.texts[len(st.slots)]...)
}
