package biztype

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
)

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
