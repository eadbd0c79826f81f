package events

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseTime(t *testing.T) {
	const newYear Time = 1767225600000
	for in, want := range map[string]Time{
		"2026-01-01T00:00:00Z":                      newYear,
		"2026-01-01T00:00:00.000Z":                  newYear,
		"2026-01-01T00:00:00.5Z":                    newYear + 500,
		"2026-01-01T00:00:00.001999999Z":            newYear + 1,
		"2026-01-01T00:00:00.123456789012Z":         newYear + 123,
		"2025-12-31T23:59:59.999999Z":               newYear - 1,
		"2026-01-01T05:30:00+05:30":                 newYear,
		"2025-12-31T16:00:00-08:00":                 newYear,
		"2025-12-31T23:00:00.25-01:00":              newYear + 250,
		"1969-12-31T23:59:59.9999Z":                 -1,
		"2024-02-29T00:00:00Z":                      1709164800000,
		"0000-01-01T00:00:00Z":                      minTime,
		"9999-12-31T23:59:59.999Z":                  maxTime,
		"9999-12-31T23:59:59.999999-00:00":          maxTime,
		"0000-01-02T00:00:00+23:59":                 minTime + 60_000,
		"2026-01-01T00:00:00+00:00":                 newYear,
		"2026-01-01T00:00:00.00000000000000000000Z": newYear,
	} {
		got, err := ParseTime(in)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", in, int64(got), err, int64(want))
		}
	}
}

func TestParseTimeRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "a word": "soon", "a number": "1767225600000", "a date": "2026-01-01", "no zone": "2026-01-01T00:00:00",
		"a space": "2026-01-01 00:00:00Z", "a small t": "2026-01-01t00:00:00Z", "a small z": "2026-01-01T00:00:00z",
		"a comma": "2026-01-01T00:00:00,5Z", "a bare point": "2026-01-01T00:00:00.Z", "a short hour": "2026-01-01T1:00:00Z",
		"month 13": "2026-13-01T00:00:00Z", "day 30 of February": "2026-02-30T00:00:00Z", "hour 24": "2026-01-01T24:00:00Z",
		"second 60": "2026-01-01T00:00:60Z", "a zone of 24 hours": "2026-01-01T00:00:00+24:00", "a zone of 60 minutes": "2026-01-01T00:00:00+01:60",
		"a zone without colon": "2026-01-01T00:00:00+0100", "a zone without minutes": "2026-01-01T00:00:00+01", "a named zone": "2026-01-01T00:00:00UTC",
		"a space before": " 2026-01-01T00:00:00Z", "a space behind": "2026-01-01T00:00:00Z ", "a line behind": "2026-01-01T00:00:00Z\n",
		"five digits": "10000-01-01T00:00:00Z", "a negative year": "-001-01-01T00:00:00Z",
		// Outside the bounds once the zone is taken off: a log that held one could
		// not be read again.
		"a year 10000 in UTC":  "9999-12-31T23:59:59.999-00:01",
		"a year before 0":      "0000-01-01T00:00:00+00:01",
		"a year 10000 at most": "9999-12-31T23:59:59-23:59",
	} {
		if got, err := ParseTime(in); err == nil || got != 0 {
			t.Errorf("%s: %q is read as %s, %v", name, in, got, err)
		}
	}
}

func TestTimeForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyTime().Draw(t, "time")
		if len(v.String()) != len(timeLayout) {
			t.Fatalf("%d is shown as %s", int64(v), v)
		}
		if got, err := ParseTime(v.String()); err != nil || got != v {
			t.Fatalf("%s comes back as %s, %v", v, got, err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got Time
		if err := json.Unmarshal(b, &got); err != nil || got != v {
			t.Fatalf("%s comes back as %s, %v", b, got, err)
		}
		if TimeOf(v.Std()) != v || v.Std().Location() != time.UTC {
			t.Fatalf("%s becomes %s", v, v.Std())
		}
	})
	for _, bad := range []string{`1`, `{}`, `"x"`, `true`, "\"2026-01-01\""} {
		var got Time
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %s", bad, got)
		}
	}
	if TimeOf(time.UnixMicro(-1)) != -1 || TimeOf(time.UnixMicro(1999)) != 1 {
		t.Error("times are not truncated towards the past")
	}
	if Time(5).Add(-7) != -2 || !minTime.Valid() || !maxTime.Valid() || (minTime - 1).Valid() || (maxTime + 1).Valid() {
		t.Error("arithmetic or bounds of times are wrong")
	}
}
