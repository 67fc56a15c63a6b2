package contest

import (
	"fmt"
	"strconv"
)

// digits of the number at the beginning of a body.
const digits = 10

// Body is the payload of the task with the number: of the size of a small JSON
// object, and no JSON, so that nobody decodes it.
func Body(number int) string {
	return fmt.Sprintf("%0*d order A-1234567890, reason unpaid, customer 4711, note thirty minutes", digits, number)
}

// number reads what Body wrote.
func number(body string) (int, error) {
	if len(body) < digits {
		return 0, fmt.Errorf("delivered %q, which no task has as its body", body)
	}
	return strconv.Atoi(body[:digits])
}
