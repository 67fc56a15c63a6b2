package client

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// JSON writes a value without the escapes that only HTML needs: people read it in a SQL client. Beside the text it returns an error
// if a text of the value is not UTF-8: encoding/json has put \ufffd in the place of its bytes.
func JSON(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	text := strings.TrimSuffix(b.String(), "\n")
	if err == nil && strings.Contains(text, `\ufffd`) { // which may also come from a json.RawMessage, and is right then
		err = garbled(reflect.ValueOf(value), "")
	}
	return text, err
}

// garbled finds a text in a value that encoding/json does not keep, and returns an error that says where it is. What writes its own JSON is
// left out. The value has no cycles, as it has been written.
func garbled(v reflect.Value, at string) error {
	if !v.IsValid() || !v.CanInterface() {
		return nil
	}
	if v.CanAddr() && v.Kind() != reflect.Pointer {
		if _, writesItself := v.Addr().Interface().(json.Marshaler); writesItself {
			return nil
		}
	}
	switch of := v.Interface().(type) {
	case json.Marshaler:
		return nil
	case encoding.TextMarshaler:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return nil
		}
		text, _ := of.MarshalText()
		return notUTF8(string(text), at)
	}
	switch v.Kind() {
	case reflect.String:
		return notUTF8(v.String(), at)
	case reflect.Interface, reflect.Pointer:
		return garbled(v.Elem(), at)
	case reflect.Struct:
		return garbledField(v, at)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := garbled(v.Index(i), at+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	case reflect.Map:
		for of := v.MapRange(); of.Next(); {
			name := at + "." + fmt.Sprint(of.Key())
			if err := errors.Join(garbled(of.Key(), name), garbled(of.Value(), name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func garbledField(v reflect.Value, at string) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		of := v.Field(i)
		if f.Anonymous && of.Kind() == reflect.Struct && !of.CanInterface() { // its exported fields are written
			if err := garbledField(of, at); err != nil {
				return err
			}
		}
		if err := garbled(of, at+"."+f.Name); err != nil {
			return err
		}
	}
	return nil
}

func notUTF8(text, at string) error {
	if utf8.ValidString(text) {
		return nil
	}
	if at = strings.TrimPrefix(at, "."); at == "" {
		return errors.New("it is not UTF-8")
	}
	return fmt.Errorf("%q is not UTF-8: use []byte, or encode it", at)
}

// ReadJSON is json.Unmarshal into what a pointer points to, except that a number in an any stays a json.Number if a float64 does not hold it
// exactly, as 9007199254740993 does not.
func ReadJSON(text string, into any) error {
	v := reflect.ValueOf(into).Elem()
	if !holdsAny(v.Type()) || !mayLose(text) || !json.Valid([]byte(text)) {
		return json.Unmarshal([]byte(text), into)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(into)
	settle(v)
	return err
}

// mayLose reports whether a JSON may have a number that a float64 does not hold: one with an exponent, or more digits than 15.
func mayLose(text string) bool {
	digits := 0
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9':
			if digits++; digits > 15 {
				return true
			}
		case c == '.' && digits > 0:
		case (c == 'e' || c == 'E') && digits > 0:
			return true
		default:
			digits = 0
		}
	}
	return false
}

// looseTypes has what holdsAny has found, by reflect.Type.
var looseTypes sync.Map

// holdsAny reports whether json.Unmarshal may put a float64 of its choice into a value of a type.
func holdsAny(t reflect.Type) bool {
	if known, ok := looseTypes.Load(t); ok {
		return known.(bool)
	}
	found := reachesAny(t, map[reflect.Type]bool{})
	looseTypes.Store(t, found)
	return found
}

var readsItself = reflect.TypeFor[json.Unmarshaler]()

func reachesAny(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || reflect.PointerTo(t).Implements(readsItself) {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return reachesAny(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if reachesAny(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// settle makes a float64 of each number in an any that a float64 holds. The value was read with UseNumber.
func settle(v reflect.Value) {
	if reflect.PointerTo(v.Type()).Implements(readsItself) {
		return
	}
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() {
			v.Set(reflect.ValueOf(settled(v.Interface())))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			settle(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct {
				settle(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			settle(v.Index(i))
		}
	case reflect.Map:
		for of := v.MapRange(); of.Next(); {
			one := reflect.New(v.Type().Elem()).Elem()
			one.Set(of.Value())
			settle(one)
			v.SetMapIndex(of.Key(), one)
		}
	}
}

// settled is settle for what json makes of an any.
func settled(value any) any {
	switch of := value.(type) {
	case json.Number:
		if f, exact := asFloat(string(of)); exact {
			return f
		}
	case map[string]any, []any:
		settle(reflect.ValueOf(of))
	}
	return value
}

// asFloat returns a number, and whether a float64 that is written again has the same digits.
func asFloat(number string) (float64, bool) {
	f, err := strconv.ParseFloat(number, 64)
	digits, exponent, ok := decimal(number)
	again, power, _ := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return f, err == nil && ok && digits == again && exponent == power
}

// decimal returns the digits of a number of JSON without zeros at both ends, and the power of ten of the last one.
func decimal(number string) (digits string, exponent int, ok bool) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return "", 0, false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "", 0, true
	}
	return short, exponent + len(digits) - len(short), true
}
