package console

import (
	"encoding/json"
	"strconv"
	"strings"
)

// language is one that pages can be in.
type language struct {
	Tag, Name string
	column    int // in texts
}

// languageList are all, the default first.
var languageList = []language{{"en", "English", 0}, {"zh-CN", "中文", 1}}

// languages are those by their tags.
var languages = func() map[string]*language {
	all := map[string]*language{}
	for i := range languageList {
		all[languageList[i].Tag] = &languageList[i]
	}
	return all
}()

// texts are all words of the pages: English and Chinese by a key. A test compares them with what the pages ask for.
var texts = pairsOf("text.json")

// pairsOf reads a table of texts in both languages.
func pairsOf(file string) (all map[string][2]string) {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
}

// preferred is the language that was chosen, or else the one that the browser likes best, or else English.
func preferred(chosen, accepted string) string {
	if languages[chosen] != nil {
		return chosen
	}
	best, weight := languageList[0].Tag, 0.0
	for part := range strings.SplitSeq(accepted, ",") {
		name, q, given := strings.Cut(part, ";")
		w := 1.0
		if given {
			w, _ = strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(q), "q="), 64) // a weight that is none counts as 0
		}
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), "-")
		for _, l := range languageList {
			if own, _, _ := strings.Cut(l.Tag, "-"); own == primary && w > weight {
				best, weight = l.Tag, w
			}
		}
	}
	return best
}
