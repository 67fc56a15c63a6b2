package tocsin_test

import (
	"encoding/json"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestAStatusIsReadBackFromItsWord(t *testing.T) {
	t.Parallel()
	for _, want := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead} {
		text, err := json.Marshal(want)
		var got tocsin.Status
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != want {
			t.Errorf("%s: read back as %s: %v", text, got, err)
		}
	}
	var s tocsin.Status
	if err := json.Unmarshal([]byte(`"finished"`), &s); err == nil || err.Error() != `status "finished": want one of pending, claimed, done, cancelled, dead` {
		t.Errorf("an unknown word: %v", err)
	}
}
