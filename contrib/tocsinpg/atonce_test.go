package tocsinpg

import (
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Of programs that make the same outbox at once all succeed, and one says that it made the table.
func TestTheSameOutboxFromManyAtOnce(t *testing.T) {
	t.Parallel()
	cfg, _ := business(t)
	created, errs := devtest.AtOnce(8, func(int) (bool, error) { return ApplyOutbox(t.Context(), cfg) })
	made := 0
	for i, err := range errs {
		if err != nil {
			t.Error(err)
		}
		if created[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d say that they made the outbox", made)
	}
	verifies(t, cfg)
}
