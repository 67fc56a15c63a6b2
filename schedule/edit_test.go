package schedule

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

// unread is a schedule without the time when it was read.
func (s Schedule) unread() Schedule {
	s.ReadAt = time.Time{}
	return s
}

func TestOnlyAScheduleAsItWasReadIsChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, d := s.create(every("a", "1m")), every("a", "2m")
	if same, changes, err := s.Edit(t.Context(), first, d, true); err != nil || same.Revision != 1 || len(changes) != 1 || changes[0].Field != "cron" {
		t.Error(same, changes, err)
	}
	second, changes, err := s.Edit(t.Context(), first, d, false)
	if err != nil || len(changes) != 1 || second.Revision != 2 || !reflect.DeepEqual(second.unread(), s.get("a").unread()) {
		t.Errorf("%+v %v %v\nstored %+v", second, changes, err, s.get("a"))
	}
	if same, changes, err := s.Edit(t.Context(), second, d, false); err != nil || len(changes) > 0 || same.Revision != 2 {
		t.Error(same, changes, err)
	}
	if _, _, err := s.Edit(t.Context(), first, every("a", "3m"), false); !errors.Is(err, ErrRevision) {
		t.Error(err)
	}
	if _, _, err := s.Edit(t.Context(), second, every("b", "3m"), false); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), first); !errors.Is(err, ErrRevision) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), second); err != nil {
		t.Error(err)
	}
	// It is made anew: what was read before is gone, though it has the first revision again.
	if anew := s.create(every("a", "1m")); !reflect.DeepEqual(anew.unread(), s.get("a").unread()) {
		t.Errorf("%+v\nstored %+v", anew, s.get("a"))
	}
	if _, _, err := s.Edit(t.Context(), first, d, false); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := s.DeleteRead(t.Context(), first); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
