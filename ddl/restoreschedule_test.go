package ddl

import (
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// The copy's schedules had made runs until it was made. Those that would follow until the last time known were made too, and
// are lost with the rest; an operator who lets tasks of that time count as settled does not want them again.
func TestSchedulesOfACopyDoNotRepeatWhatCountsAsSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt    RestoreOptions
		behind []time.Duration // of made_until after the last time known: of order.close, with jitter, of coupon.remind, inactive
	}{
		"nothing counts as settled": {RestoreOptions{}, []time.Duration{-24 * time.Hour, -24 * time.Hour, -24 * time.Hour, -24 * time.Hour}},
		"one biz type does":         {RestoreOptions{Dead: []string{"order.close"}}, []time.Duration{markLag, markLag - time.Minute, -24 * time.Hour, -24 * time.Hour}},
		"all do":                    {RestoreOptions{Cancelled: []string{AllTypes}}, []time.Duration{markLag, markLag - time.Minute, markLag, -24 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRevival(t)
			r.add(3, 0, tocsin.Pending, 1, -time.Hour)
			made := time.UnixMilli(r.ends).UTC().Format(timeForm)
			for i, values := range []string{"1, 0, 'active'", "1, 60000, 'active'", "2, 0, 'active'", "1, 0, 'inactive'"} {
				r.exec(fmt.Sprintf(`INSERT INTO {1}.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, revision, anchor, made_until, attribute, biz_type, jitter_ms, state)
VALUES (%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 's%d', 3, 7, '0 4 * * *', 'UTC', 1000, 'once', 100, 'allow', 1,
    '%s', '%s', '', %s)`, i+1, i, made, made, values))
			}
			if err := r.accept(c.opt); err != nil {
				t.Fatal(err)
			}
			for i, behind := range c.behind {
				var got time.Time
				if err := r.db.QueryRow("SELECT CAST(made_until AS CHAR) FROM "+r.cfg.Layout.Database(1)+".schedule WHERE schedule_id = ?", i+1).Scan(textTime{&got}); err != nil {
					t.Fatal(err)
				}
				if want := time.UnixMilli(r.known).UTC().Add(behind); !got.Equal(want) {
					t.Errorf("schedule %d is made until %s, want %s", i, got, want)
				}
			}
		})
	}
}

// textTime scans a DATETIME(3) as text.
type textTime struct{ into *time.Time }

func (s textTime) Scan(v any) (err error) {
	*s.into, err = time.Parse(timeForm, string(v.([]byte)))
	return err
}
