package api

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// A cursor is a place in a list, the sum of the list's parameters, and a sum of all that. It gives no rights: a made-up
// cursor only reads from another place of a list that the token may read anyway. So it is checked but not signed.
const (
	placeBytes = 8 + 8 + 8
	sumBytes   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal writes a place of the list that the filter describes.
func seal(place []byte, filter string) string {
	b := binary.BigEndian.AppendUint32(place, crc32.Checksum([]byte(filter), castagnoli))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// unseal reads what seal wrote.
func unseal(text, filter string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	place := len(b) - 2*sumBytes
	if err != nil || place < 0 || crc32.Checksum(b[:place+sumBytes], castagnoli) != binary.BigEndian.Uint32(b[place+sumBytes:]) {
		return nil, badCursor("this is no cursor: use next_cursor as it was given, or begin again without one")
	}
	if crc32.Checksum([]byte(filter), castagnoli) != binary.BigEndian.Uint32(b[place:]) {
		return nil, badCursor(foreignCursor)
	}
	return b[:place], nil
}

const foreignCursor = "the cursor is of another list: send it with the parameters of the page before"

func badCursor(detail string) error { return problem(http.StatusBadRequest, "cursor", "%s", detail) }

// cursor writes a place of a list of tasks.
func cursor(p operator.Place, filter string) string {
	b := make([]byte, 0, placeBytes+2*sumBytes)
	b = binary.BigEndian.AppendUint64(b, uint64(p.ActionTime.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, p.Type)
	b = binary.BigEndian.AppendUint64(b, uint64(p.JobID))
	return seal(b, filter)
}

// listCursor writes a place among the tasks of a biz_id or key.
func listCursor(p tocsin.ListPlace, filter string) string {
	b := binary.BigEndian.AppendUint64(nil, p.Type)
	b = binary.BigEndian.AppendUint64(b, uint64(p.JobID))
	if p.DedupKey != nil {
		b = append(append(b, 1), p.DedupKey...)
	}
	return seal(b, filter)
}

// readListCursor reads what listCursor wrote.
func readListCursor(text, filter string) (*tocsin.ListPlace, error) {
	b, err := unseal(text, filter)
	if err != nil || len(b) < 8+8 {
		return nil, cmp.Or(err, badCursor(foreignCursor))
	}
	p := &tocsin.ListPlace{Type: binary.BigEndian.Uint64(b), JobID: tocsin.JobID(binary.BigEndian.Uint64(b[8:]))}
	if key := b[8+8:]; len(key) > 0 {
		p.DedupKey = key[1:]
	}
	return p, nil
}

// readCursor reads what cursor wrote; nil for "".
func readCursor(text, filter string) (*operator.Place, error) {
	if text == "" {
		return nil, nil
	}
	b, err := unseal(text, filter)
	if err != nil || len(b) != placeBytes {
		return nil, cmp.Or(err, badCursor(foreignCursor))
	}
	return &operator.Place{
		ActionTime: time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(), Type: binary.BigEndian.Uint64(b[8:]),
		JobID: tocsin.JobID(binary.BigEndian.Uint64(b[16:])),
	}, nil
}
