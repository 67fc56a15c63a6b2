package api

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/schedule"
)

// retrySoon is the Retry-After of what may work in a moment, in seconds.
const retrySoon = 1

// known maps errors of packages tocsin, schedule and operator. The first that fits counts. An empty detail is the error's own text,
// which names what the caller has sent, but no payload.
var known = []struct {
	err    error
	status int
	code   string
	detail string
}{
	{tocsin.ErrUnknownOutcome, http.StatusServiceUnavailable, "outcome_unknown",
		"the connection to the database broke, and the change may or may not be stored: repeat an add with the same dedup_key, and look at the task or schedule before anything else"},
	{tocsin.ErrUnreachable, http.StatusServiceUnavailable, "unavailable", "a database server can't be used now, and nothing was stored on it: repeat the request later"},
	{tocsin.ErrLayout, http.StatusServiceUnavailable, "unavailable", "a database is not the one that the node's config describes: its log and `tocsin doctor` say more"},
	{tocsin.ErrKeyCollision, http.StatusConflict, "key_collision", ""},
	{tocsin.ErrSchema, http.StatusConflict, "schema_too_old", "schedules need `tocsin ddl apply`, then `tocsin ddl finish`: see docs/operations.md"},
	{tocsin.ErrNotFound, http.StatusNotFound, "not_found", "there is no such task that you may see"},
	{tocsin.ErrUnknownBizType, http.StatusNotFound, "unknown_biz_type", "there is no such biz type that you may use: GET /v1/biz-types lists yours"},
	{schedule.ErrNotFound, http.StatusNotFound, "not_found", "there is no such schedule that you may see"},
	{schedule.ErrExists, http.StatusConflict, "exists", "there is a schedule of this name: choose another one, or change that one by PUT; names are those of all biz types together"},
	{schedule.ErrAmbiguous, http.StatusConflict, "ambiguous", "two schedules have this name, and somebody with the command must delete one of them: `tocsin schedule delete` names both"},
	{schedule.ErrRevision, http.StatusPreconditionFailed, "changed", "somebody has changed the schedule since you read it: read it again, and repeat the change with its ETag"},
	{schedule.ErrInvalid, http.StatusUnprocessableEntity, "invalid", ""},
	{tocsin.ErrInDelivery, http.StatusConflict, "in_delivery", "the task is being delivered, and its biz type is strict: nothing was changed; try again in a moment"},
	{operator.ErrStatus, http.StatusConflict, "wrong_status", ""},
	{tocsin.ErrInvalid, http.StatusUnprocessableEntity, "invalid", ""},
	{pull.ErrNotRunning, http.StatusServiceUnavailable, "stopping", "the node of this API does not run: ask another one, or repeat the request"},
	{pull.ErrFull, http.StatusTooManyRequests, "busy", ""},
	{mysql.ErrTimeUp, http.StatusServiceUnavailable, "timeout", "the list took a server longer than it may: name a shorter time by from and to"},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "timeout", "the request took longer than node.api.limits.timeout: repeat it later; what was changed stays changed"},
	{context.Canceled, http.StatusServiceUnavailable, "stopping", "the request was cut off, as its node stops or its caller is gone: repeat it"},
}

// problemOf returns what the caller is told of an error.
func problemOf(err error) *Problem {
	if over := (*tocsin.InsertLimitError)(nil); errors.As(err, &over) {
		if over.After == 0 { // the request is above the limit's burst, so waiting does not help
			return invalid("tasks", "%s", over)
		}
		return problem(http.StatusTooManyRequests, "insert_limit", "%s", over).after(int(math.Ceil(over.After.Seconds())))
	}
	for _, k := range known {
		if !errors.Is(err, k.err) {
			continue
		}
		detail := k.detail
		if detail == "" {
			detail = err.Error()
		}
		p := problem(k.status, k.code, "%s", detail)
		if k.status == http.StatusUnprocessableEntity {
			p.at("body")
		}
		if k.status == http.StatusServiceUnavailable || k.status == http.StatusTooManyRequests {
			p.retry = retrySoon
		}
		return p
	}
	switch mysql.ClassOf(err) {
	case mysql.Other, mysql.OK, mysql.Duplicate:
		return problem(http.StatusInternalServerError, "internal", "the API failed: its log has the cause")
	}
	return problem(http.StatusServiceUnavailable, "unavailable", "a database server refused, or is busy: repeat the request later; the node's log has the cause").after(retrySoon)
}

// noTask is the answer for a task that is not there, and for one of a biz type that the token is not for.
func noTask(id string) *Problem {
	return problem(http.StatusNotFound, "not_found", "there is no task %s that you may see", id)
}

// noType is the answer for a biz type that is not there, and for one that the token is not for.
func noType(name string) *Problem {
	return problem(http.StatusNotFound, "unknown_biz_type", "there is no biz type %q that you may use: GET /v1/biz-types lists yours", name)
}

// noSchedule is the answer for a schedule that is not there, and for one of a biz type that the token is not for.
func noSchedule(name string) *Problem {
	return problem(http.StatusNotFound, "not_found", "there is no schedule %q that you may see", name)
}

// incomplete returns the servers that a result lacks, or the error if nothing else is known.
func (c *call) incomplete(err error, some bool) ([]string, error) {
	var partial *operator.Partial
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &partial), partial.All && !some:
		return nil, err
	}
	c.cause = err
	return partial.Servers, nil
}
