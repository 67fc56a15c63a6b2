package biztype

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/tocsinhq/tocsin"
)

// SetPaused pauses a biz type, or lets it go on, in every database. It leaves the
// rest of the stored policy as it is, including changes made at the same time and
// fields that only a newer program knows. Databases that can't be written are named
// by the error, as in Apply. The next Apply of a file sets the flag as the file says.
func SetPaused(ctx context.Context, cfg tocsin.Config, name string, paused bool) (Result, error) {
	return apply(ctx, cfg, false, func(databases []database, _ error) ([]row, error) {
		r, err := stored(databases, name)
		if err != nil {
			return nil, err
		}
		if r.Policy, err = setFlag(r.Policy, "paused", paused); err != nil {
			return nil, fmt.Errorf("biz type %s: policy of revision %d: %w", name, r.Revision, err)
		}
		return []row{r}, nil
	})
}

// stored returns the newest row of a biz type. It fails if that row's policy can't be
// read.
func stored(databases []database, name string) (row, error) {
	var latest row
	for _, d := range databases {
		for _, r := range d.rows {
			if r.Name == name && r.Revision > latest.Revision {
				latest = r
			}
		}
	}
	if latest.Revision == 0 {
		return row{}, fmt.Errorf("%w %q: `tocsin biz list` names those that are applied", tocsin.ErrUnknownBizType, name)
	}
	_, err := latest.decode()
	return latest, err
}

// errNoObject means that a stored policy is not a JSON object.
var errNoObject = errors.New("the policy is not one JSON object")

// field is one field of a JSON object, with its value as it was written.
type field struct {
	name  string
	value json.RawMessage
}

// setFlag returns a JSON object with one flag set, or left out if it is false. All other fields keep their value and
// place, even those that this program does not know. If the flag has the value already, nothing changes.
func setFlag(object, name string, flag bool) (string, error) {
	fields, err := fieldsOf(object)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	switch {
	case i < 0 && !flag, i >= 0 && string(fields[i].value) == strconv.FormatBool(flag):
		return object, nil
	case i < 0:
		fields = append(fields, field{name, json.RawMessage("true")})
	case flag:
		fields[i].value = json.RawMessage("true")
	default:
		fields = slices.Delete(fields, i, i+1)
	}
	return objectOf(fields), nil
}

// fieldsOf returns the fields of a JSON object in their order.
func fieldsOf(object string) (fields []field, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(object)))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: name.(string)} // a name, or Token would have failed
		if err := d.Decode(&f.value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNoObject
	}
	return fields, nil
}

// objectOf writes fields as a JSON object.
func objectOf(fields []field) string {
	b := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(f.name) // marshalling a string never fails
		b = append(append(append(b, name...), ':'), f.value...)
	}
	return string(append(b, '}'))
}
