package console

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/api"
)

// A file of thousands of schedules with long payloads would take the memory of the node.
func TestAFileOfSchedulesIsBounded(t *testing.T) {
	t.Parallel()
	payload := strings.Repeat("é", 1000)
	s := api.Schedule{Definition: api.ScheduleDefinition{Name: "a", ScheduleFields: api.ScheduleFields{Payload: &payload}}}
	size := len(text(s.Definition))
	some := []api.Schedule{s, s, s}
	for room, want := range map[int][2]int{0: {0, 0}, size - 1: {0, size - 1}, size: {1, 0}, 3*size - 1: {2, size - 1}, 3*size + 5: {3, 5}} {
		if fit, left := fitting(some, room); [2]int{fit, left} != want {
			t.Errorf("%d have room in %d, with %d left; want %v", fit, room, left, want)
		}
	}
}
