package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// What DeadGroups looks at, and what it shows of a group.
const (
	MaxGrouped  = 1000 // tasks
	groupedJobs = 5
)

// DeadGroup groups dead tasks of one biz type whose last errors differ only in numbers, ids, addresses and quoted text.
type DeadGroup struct {
	BizType string         `json:"biz_type"` // "#7" where no policy has number 7
	Error   string         `json:"error"`    // of all of them, with * for what differs or may differ: numbers, ids, quoted text, addresses
	Part    string         `json:"part"`     // the longest part of Error without *, which all their last errors have: DeadQuery.Error of a redrive; "": there is none
	Example string         `json:"example"`  // the last error of the latest of them, as it is
	Tasks   int            `json:"tasks"`
	First   time.Time      `json:"first"`   // when the first of them died
	Last    time.Time      `json:"last"`    // when the latest of them died
	JobIDs  []tocsin.JobID `json:"job_ids"` // of the latest 5
}

// DeadGroups is the JSON of `tocsin task dead`.
type DeadGroups struct {
	Groups []DeadGroup `json:"groups"` // the largest first
	Tasks  int         `json:"tasks"`  // in all groups, MaxGrouped at most
	More   bool        `json:"more"`   // there may be more dead tasks, which died before these
}

// DeadGroups groups the latest MaxGrouped dead tasks by biz type and error. BizType, Sees, Since and Until of the query say which; the
// rest of it is not read. If it could not read everything, it returns the groups of what it read beside a Partial.
func (o *Operator) DeadGroups(ctx context.Context, q DeadQuery) (DeadGroups, error) {
	all := DeadGroups{Groups: []DeadGroup{}}
	if err := q.check(); err != nil {
		return all, err
	}
	found, err := o.FindPage(ctx, Query{
		Status: tocsin.Dead, BizType: q.BizType, Sees: q.Sees, From: q.Since, To: q.Until, NoPayload: true, Limit: MaxGrouped,
	})
	all.More = found.Next != nil
	all.group(found.Tasks)
	return all, err
}

// group groups dead tasks, the latest first.
func (all *DeadGroups) group(tasks []tocsin.Info) {
	type key struct{ bizType, pattern string }
	at := make(map[key]int)
	for _, task := range tasks {
		k := key{task.BizType, errorPattern(task.LastError)}
		i, known := at[k]
		if !known {
			i = len(all.Groups)
			at[k], all.Groups = i, append(all.Groups, DeadGroup{BizType: k.bizType, Error: k.pattern, Part: longestPart(k.pattern), Example: task.LastError, Last: task.ActionTime})
		}
		g := &all.Groups[i]
		if g.First = task.ActionTime; len(g.JobIDs) < groupedJobs {
			g.JobIDs = append(g.JobIDs, task.JobID)
		}
		g.Tasks++
	}
	all.Tasks = len(tasks)
	slices.SortStableFunc(all.Groups, func(a, b DeadGroup) int { return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), b.Last.Compare(a.Last)) })
}
