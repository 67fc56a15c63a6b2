package client

import (
	"testing"
)

func TestTheMarkGoesInAndComesOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers string
		version int
		stored  string
	}{
		"nothing":           {"", 0, ""},
		"the first version": {`{"tenant":"a"}`, 1, `{"tenant":"a"}`},
		"no headers":        {"", 2, `{"_payload_version":"2"}`},
		"beside headers":    {`{"a":"}","b":"{\"x\":1}"}`, 12, `{"_payload_version":"12","a":"}","b":"{\"x\":1}"}`},
	} {
		stored := setVersion(c.headers, c.version)
		if stored != c.stored {
			t.Errorf("%s: stored as %s, want %s", name, stored, c.stored)
		}
		want := c.version
		if want < FirstMarked {
			want = 0
		}
		if rest, version := TakeVersion(stored); rest != c.headers || version != want {
			t.Errorf("%s: read back as %q, %d", name, rest, version)
		}
	}
}

func TestTheMarkOfOtherProgramsIsRead(t *testing.T) {
	t.Parallel()
	for headers, want := range map[string]struct {
		rest    string
		version int
	}{
		`{"_payload_version": "2"}`:                       {"", 2},
		`{"_payload_version":"1"}`:                        {"", 1},
		`{"a": "<&>", "_payload_version": "3", "b": "x"}`: {`{"a":"<&>","b":"x"}`, 3},
		`{"_payload_version":"2", "a": "x"}`:              {`{ "a": "x"}`, 2},
		`{"_payload_version":"2","_payload_version":"x"}`: {`{"_payload_version":"x"}`, 2},
		`{"a":"_payload_version"}`:                        {`{"a":"_payload_version"}`, 0},
		`{"_payload_version": 2}`:                         {`{"_payload_version": 2}`, 0},
		`{"_payload_version": null}`:                      {`{"_payload_version": null}`, 0},
		`{"_payload_version":"two"}`:                      {`{"_payload_version":"two"}`, 0},
		`{"_payload_version":"-2"}`:                       {`{"_payload_version":"-2"}`, 0},
		`{"_payload_version":"02"}`:                       {`{"_payload_version":"02"}`, 0},
		`{"_payload_version":"99999999999999999999"}`:     {`{"_payload_version":"99999999999999999999"}`, 0},
		`["_payload_version"]`:                            {`["_payload_version"]`, 0},
		`{"_payload_version":"2"`:                         {`{"_payload_version":"2"`, 0},
		`{"_payload_version":"2"x`:                        {`{"_payload_version":"2"x`, 0},
	} {
		if rest, version := TakeVersion(headers); rest != want.rest || version != want.version {
			t.Errorf("%s: read as %q, %d, want %q, %d", headers, rest, version, want.rest, want.version)
		}
	}
}
