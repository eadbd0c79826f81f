package events

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Time is an instant in milliseconds since 1970-01-01T00:00:00Z. It is the only
// form of time on the log: integral, UTC, without a zone that could get lost.
type Time int64

// timeLayout is the one textual form of a Time: ISO-8601 UTC with exactly three
// decimals.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Bounds of a Time: the instants whose text has a four-digit year.
const (
	minTime Time = -62167219200000 // 0000-01-01T00:00:00.000Z
	maxTime Time = 253402300799999 // 9999-12-31T23:59:59.999Z
)

// TimeOf truncates t to milliseconds.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// rfc3339 is the shape of a date-time. time.Parse is laxer: it takes a comma for
// the decimals, hours of one digit, and zones of a day and more.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseTime reads an RFC 3339 date-time with a zone, and truncates it to
// milliseconds. Lower-case separators and a comma for the decimals, which
// ISO-8601 allows, are refused; so is an instant that has no four-digit year in UTC.
func ParseTime(s string) (Time, error) {
	var t Time
	std, err := time.Parse(time.RFC3339Nano, s)
	if err == nil {
		t = TimeOf(std)
	}
	if err != nil || !t.Valid() || !rfc3339.MatchString(s) {
		return 0, fmt.Errorf("not an RFC 3339 date-time: %q", clip(s))
	}
	return t, nil
}

// Std gives t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add moves t by ms milliseconds.
func (t Time) Add(ms int64) Time { return t + Time(ms) }

// Valid reports whether the text of t has a four-digit year.
func (t Time) Valid() bool { return t >= minTime && t <= maxTime }

// String is the ISO-8601 form with milliseconds, for example
// 2026-01-01T00:00:00.000Z.
func (t Time) String() string { return t.Std().Format(timeLayout) }

// MarshalJSON writes the textual form.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(t.String())), nil
}

// UnmarshalJSON reads what ParseTime reads.
func (t *Time) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("a time is a text, not %s", clip(string(b)))
	}
	*t, err = ParseTime(s)
	return err
}

// clip shortens a text for an error message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
