package health

// Condition says whether a database can be used.
type Condition string

// The conditions.
const (
	Usable      Condition = "usable"
	Wrong       Condition = "wrong"       // statements to it are refused
	Unreachable Condition = "unreachable" // its server can't be asked
)

// Database is what is known of one database.
type Database struct {
	Number int       `json:"number"`
	Name   string    `json:"name"`   // toc_6
	Server string    `json:"server"` // as the config names it
	Is     Condition `json:"condition"`
	Why    string    `json:"why,omitempty"` // one sentence: why it can't be used, or what is wrong though it can
}

// State is what is known of all databases, by number. It is never changed.
type State []Database

// Unusable gives the numbers of the databases that can't be used, ascending.
func (s State) Unusable() []int { return s.that(func(d Database) bool { return d.Is != Usable }) }

// Wrong gives those of them whose server answers.
func (s State) Wrong() []int { return s.that(func(d Database) bool { return d.Is == Wrong }) }

func (s State) that(match func(Database) bool) []int {
	var numbers []int
	for _, d := range s {
		if match(d) {
			numbers = append(numbers, d.Number)
		}
	}
	return numbers
}

// Sick gives the databases of which something is to be said.
func (s State) Sick() []Database {
	sick := []Database{} // not null in JSON
	for _, d := range s {
		if d.Why != "" {
			sick = append(sick, d)
		}
	}
	return sick
}
