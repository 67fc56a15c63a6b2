package tocsinkafka

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/outbox"
)

// command is the body of a record: that of POST /v1/tasks, and op.
type command struct {
	Op             string            `json:"op"`
	BizType        string            `json:"biz_type"`
	BizID          json.Number       `json:"biz_id"`
	BizKey         string            `json:"biz_key"`
	DueTime        *string           `json:"due_time"`
	DelayMS        *int64            `json:"delay_ms"`
	DedupKey       string            `json:"dedup_key"`
	Payload        *string           `json:"payload"`
	PayloadVersion int               `json:"payload_version"`
	Headers        map[string]string `json:"headers"`
}

// nullPayload is the payload of a command without one: Go handlers decode payloads as JSON.
const nullPayload = "null"

// maxName is more than an op or the name of a biz type has, in bytes.
const maxName = 255

// Headers of a record that is a command itself, with its value as the payload.
const (
	prefix        = "tocsin-"
	opHeader      = prefix + "op"
	typeHeader    = prefix + "biz-type"
	bizIDHeader   = prefix + "biz-id"
	dueHeader     = prefix + "due"
	delayHeader   = prefix + "delay-ms"
	dedupHeader   = prefix + "dedup-key"
	versionHeader = "_payload_version" // of the payload, among the headers of a row
)

// traced are headers of a record that its task gets, too.
var traced = []string{"traceparent", "tracestate"}

// row makes a row of a record. One that is no command is a row that can't be moved, for the reason in Unfit.
func (t *topic) row(r *kgo.Record, asked, answered time.Time) outbox.Row {
	row := outbox.Row{Read: asked, Answered: answered}
	row.ID, row.Created = uint64(r.Offset)+1, created(r)
	if r.Timestamp.UnixMilli() > 0 {
		row.Age = max(answered.Sub(r.Timestamp), 0) // a delay counts from the record's time, never later than now
	}
	c, err := read(r)
	if err == nil {
		err = c.fill(&row)
	}
	if err == nil && t.RequireKey && string(r.Key) != cmp.Or(row.BizKey, strconv.FormatUint(row.BizID, 10)) {
		err = errors.New("the record's key is not the command's biz_id or biz_key, so other commands of the same one may overtake it")
	}
	if err == nil && row.Delay != nil && r.Timestamp.UnixMilli() <= 0 {
		err = errors.New("the record has no time from which delay_ms could count: give due_time")
	}
	row.Place()
	if err != nil {
		row.Unfit = outbox.Reason(err.Error()) // it may repeat what is in the record
	}
	if row.BizID == 0 { // then it waits for no other record, and no other for it
		row.BizID = row.ID
	}
	return row
}

// created is the record's time.
func created(r *kgo.Record) time.Time {
	if ms := r.Timestamp.UnixMilli(); ms > 0 && r.Timestamp.Year() < 9999 {
		return time.UnixMilli(ms).UTC()
	}
	return time.UnixMilli(0).UTC()
}

// read reads the command of a record.
func read(r *kgo.Record) (c command, err error) {
	if r.Value == nil {
		return c, errors.New("the value is null")
	}
	all := map[string]string{}
	for _, h := range r.Headers {
		all[h.Key] = string(h.Value)
	}
	if _, ok := all[typeHeader]; ok {
		c, err = ofHeaders(r, all)
	} else if _, ok := all[opHeader]; ok {
		c, err = ofHeaders(r, all)
	} else {
		c, err = ofBody(r.Value)
	}
	for _, name := range traced {
		if text := all[name]; err == nil && text != "" && c.Headers[name] == "" {
			if c.Headers == nil {
				c.Headers = map[string]string{}
			}
			c.Headers[name] = strings.ToValidUTF8(text, "?")
		}
	}
	return c, err
}

// ofHeaders reads a command of headers.
func ofHeaders(r *kgo.Record, all map[string]string) (c command, err error) {
	payload := string(r.Value)
	c = command{Op: all[opHeader], BizType: all[typeHeader], BizID: json.Number(all[bizIDHeader]), DedupKey: all[dedupHeader], Payload: &payload}
	if c.BizID == "" {
		c.BizKey = string(r.Key)
	}
	if text, ok := all[dueHeader]; ok {
		if _, err := name.ReadTime(text); err != nil {
			return c, fmt.Errorf("%s %q: %w", dueHeader, text, err)
		}
		c.DueTime = &text
	}
	if text, ok := all[delayHeader]; ok {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return c, fmt.Errorf("%s %q: want a whole number", delayHeader, text)
		}
		c.DelayMS = &ms
	}
	return c, nil
}

// ofBody reads a command of a body.
func ofBody(value []byte) (c command, err error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	err = d.Decode(&c)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return c, fmt.Errorf("%s can't be a JSON %s", wrong.Field, wrong.Value)
	case err != nil:
		return c, fmt.Errorf("the value is no command as JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return c, errors.New("the value has more than one JSON object")
	}
	return c, nil
}

// fill writes the command into a row.
func (c command) fill(row *outbox.Row) (err error) {
	if len(c.Op) > maxName || len(c.BizType) > maxName { // not kept: the bounds of rows in memory do not count them
		return errors.New("op or biz_type is too long")
	}
	row.Op, row.BizType, row.BizKey, row.Dedup = c.Op, c.BizType, c.BizKey, c.DedupKey
	if c.Op == "" {
		row.Op = outbox.Add
	}
	if c.BizID != "" {
		if row.BizID, err = strconv.ParseUint(string(c.BizID), 10, 64); err != nil || row.BizID == 0 {
			return fmt.Errorf("biz_id %q: want a whole number from 1 to 2^64-1", c.BizID)
		}
	}
	row.Payload = nullPayload
	if c.Payload != nil {
		row.Payload = *c.Payload
	}
	if c.DueTime != nil { // the past is due at once, however far away
		due, err := name.ReadTime(*c.DueTime)
		if err != nil {
			return fmt.Errorf("due_time %q: %w", *c.DueTime, err)
		}
		if row.Due = due.UTC(); row.Due.Before(time.UnixMilli(0)) {
			row.Due = time.UnixMilli(0).UTC()
		}
	}
	if c.DelayMS != nil {
		row.Delay = outbox.DelayOf(*c.DelayMS)
	}
	switch {
	case c.BizType == "":
		return errors.New("biz_type is missing")
	case c.BizID == "" && c.BizKey == "":
		return errors.New("name one of biz_id and biz_key")
	case !utf8.ValidString(c.BizType), !utf8.ValidString(row.Payload):
		return errors.New("biz type or payload is not UTF-8")
	case strings.HasPrefix(c.DedupKey, "\x00"):
		return errors.New("a dedup_key that begins with the character 0 is reserved")
	}
	return c.addHeaders(row)
}

// addHeaders writes the headers, and among them the version of the payload.
func (c command) addHeaders(row *outbox.Row) error {
	all := c.Headers
	if _, is := all[versionHeader]; is || c.PayloadVersion < 0 {
		return errors.New("payload_version is a whole number from 0 on, and no header")
	}
	if c.PayloadVersion > 1 {
		if all == nil {
			all = map[string]string{}
		}
		all[versionHeader] = strconv.Itoa(c.PayloadVersion)
	}
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	row.Headers = string(text)
	return err
}
