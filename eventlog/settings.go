package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go/jetstream"
)

// Metadata keys of the stream.
const (
	MetaLog          = "forge.log"           // random id of the log, kept by a restore
	MetaIncarnation  = "forge.incarnation"   // new at every creation and restore
	MetaWriteVersion = "forge.write-version" // highest version of events and envelopes that nodes may write
	// MetaHoles names positions that a restored log is known to lack, as in
	// "12,40-52": they were missing in what was restored. Absent: none.
	MetaHoles = "forge.holes"
)

// settings are those of a new stream: every one that the check insists on.
func (c Config) settings(logID, incarnation string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               events.StreamName(c.Instance),
		Description:        "forge-es: the log of instance " + c.Instance + ", append-only",
		Subjects:           events.LogSubjects(c.Instance),
		Retention:          jetstream.LimitsPolicy,
		MaxConsumers:       -1,
		MaxMsgs:            -1,
		MaxBytes:           c.MaxBytes,
		Discard:            jetstream.DiscardNew,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		Storage:            jetstream.FileStorage,
		Replicas:           c.Replicas,
		Duplicates:         c.DuplicateWindow,
		DenyDelete:         true,
		DenyPurge:          true,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Compression:        jetstream.NoCompression,
		Metadata: map[string]string{
			MetaLog:          logID,
			MetaIncarnation:  incarnation,
			MetaWriteVersion: "1",
		},
	}
}

// A setting is one row of the check: what it must be, and how to put it right.
type setting struct {
	want   string
	ok     func(found json.RawMessage) bool
	remedy string
}

// The remedies. %s is the stream.
const (
	remedyEdit    = "nats stream edit %s"
	remedyRestore = "it cannot be switched back: export the log and restore it into a new stream"
)

// wanted lists every setting of a stream that the server knows, by its name in
// the API. One that is not listed must have its zero value: a server that knows
// more may also lose more.
func (c Config) wanted() map[string]setting {
	is := func(v any, flag string) setting {
		text, _ := json.Marshal(v)
		return setting{
			want: string(text), ok: func(f json.RawMessage) bool { return bytes.Equal(f, text) },
			remedy: remedyEdit + " " + flag,
		}
	}
	off := func(remedy string) setting { return setting{want: "off", ok: isZero, remedy: remedy} }
	atLeast := func(n int64, flag string) setting {
		return setting{want: "at least " + strconv.FormatInt(n, 10), remedy: remedyEdit + " " + flag, ok: func(f json.RawMessage) bool {
			v, err := strconv.ParseInt(string(f), 10, 64)
			return err == nil && v >= n
		}}
	}
	anything := setting{want: "anything", ok: func(json.RawMessage) bool { return true }}
	once := setting{want: "0 or 1", remedy: remedyRestore, ok: func(f json.RawMessage) bool { return isZero(f) || string(f) == "1" }}
	subjects := is(events.LogSubjects(c.Instance), "--subjects "+strings.Join(events.LogSubjects(c.Instance), ","))
	subjects.ok = func(f json.RawMessage) bool {
		var s []string
		if json.Unmarshal(f, &s) != nil {
			return false
		}
		return slices.Equal(slices.Sorted(slices.Values(s)), slices.Sorted(slices.Values(events.LogSubjects(c.Instance))))
	}
	fixed := func(v any) setting { s := is(v, ""); s.remedy = remedyRestore; return s }
	persist := off(remedyRestore)
	persist.want, persist.ok = `"default"`, func(f json.RawMessage) bool { return isZero(f) || string(f) == `"default"` }
	return map[string]setting{
		"name":                      fixed(events.StreamName(c.Instance)),
		"description":               anything,
		"placement":                 anything,
		"metadata":                  anything, // checked by identity
		"subjects":                  subjects,
		"retention":                 fixed("limits"),
		"storage":                   fixed("file"),
		"max_consumers":             fixed(-1),
		"max_msgs":                  is(-1, "--max-msgs=-1"),
		"max_bytes":                 atLeast(1, "--max-bytes=<bytes>"),
		"max_age":                   is(0, "--max-age=0"),
		"max_msgs_per_subject":      is(-1, "--max-msgs-per-subject=-1"),
		"max_msg_size":              is(-1, "--max-msg-size=-1"),
		"discard":                   is("new", "--discard=new"),
		"discard_new_per_subject":   off(remedyEdit + " --no-discard-per-subject"),
		"num_replicas":              atLeast(int64(c.Replicas), "--replicas="+strconv.Itoa(c.Replicas)),
		"no_ack":                    off(remedyEdit + " --ack"),
		"duplicate_window":          is(int64(c.DuplicateWindow), "--dupe-window="+c.DuplicateWindow.String()),
		"mirror":                    off(remedyRestore),
		"sources":                   off(remedyEdit + ", and remove the sources"),
		"compression":               is("none", "--compression=none"),
		"first_seq":                 once,
		"subject_transform":         off(remedyEdit + ", and remove the subject transform"),
		"republish":                 off(remedyEdit + " --no-republish"),
		"allow_direct":              is(true, "--allow-direct"),
		"mirror_direct":             off(remedyEdit + " --no-allow-mirror-direct"),
		"sealed":                    off(remedyRestore),
		"deny_delete":               is(true, "--deny-delete"),
		"deny_purge":                is(true, "--deny-purge"),
		"allow_rollup_hdrs":         off(remedyEdit + " --no-allow-rollup"),
		"consumer_limits":           off(remedyEdit + ", and remove the consumer limits"),
		"allow_msg_ttl":             off(remedyRestore),
		"subject_delete_marker_ttl": off(remedyRestore),
		"allow_msg_counter":         off(remedyRestore),
		"allow_atomic":              is(true, "--allow-batch"),
		"allow_msg_schedules":       off(remedyRestore),
		"persist_mode":              persist,
		"allow_batched":             off(remedyEdit + ", and switch fast batches off"),
	}
}

// isZero says whether a JSON value means "off": null, false, 0, "", or a
// collection of nothing else.
func isZero(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	var v any
	return json.Unmarshal(raw, &v) == nil && zeroValue(v)
}

func zeroValue(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, e := range v {
			if !zeroValue(e) {
				return false
			}
		}
		return true
	}
	return false
}

// streamInfo is the answer to a request for the state of the stream; the
// configuration stays raw, so that a setting this code has never heard of is
// seen too.
type streamInfo struct {
	Config  map[string]json.RawMessage `json:"config"`
	Created time.Time                  `json:"created"`
	State   struct {
		Messages  uint64   `json:"messages"`
		Bytes     uint64   `json:"bytes"`
		First     uint64   `json:"first_seq"`
		Last      uint64   `json:"last_seq"`
		Consumers int      `json:"consumer_count"`
		Deleted   []uint64 `json:"deleted"`
		Lost      *struct {
			Msgs []uint64 `json:"msgs"`
		} `json:"lost"`
	} `json:"state"`
	Cluster *struct {
		Leader string `json:"leader"`
	} `json:"cluster"`
	Time time.Time `json:"ts"`

	asked time.Time     // when it was asked for, here
	took  time.Duration // until it came
}

func (s *streamInfo) metadata() map[string]string {
	var m map[string]string
	_ = json.Unmarshal(s.Config["metadata"], &m)
	return m
}

// missing is how many positions from 1 to the last one hold no message.
func (s *streamInfo) missing() uint64 { return s.State.Last - min(s.State.Messages, s.State.Last) }

// lossy finds the first setting, in the order of their names, that is not as
// wanted: a FORGE_LOG_UNSAFE with details setting, found, wanted and remedy.
func (c Config) lossy(info *streamInfo) error {
	rules := c.wanted()
	names := slices.Collect(maps.Keys(rules))
	for name := range info.Config {
		if _, known := rules[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		found := info.Config[name]
		rule, known := rules[name]
		if !known {
			rule = setting{want: "off", ok: isZero, remedy: "this version of forge-es does not know the setting: switch it off, or use a version that does"}
		}
		if rule.ok(found) {
			continue
		}
		text := string(found)
		if text == "" {
			text = "not set"
		}
		return lossySetting(events.StreamName(c.Instance), name, text, rule.want, rule.remedy)
	}
	return nil
}

func lossySetting(stream, name, found, want, remedy string) error {
	if strings.Contains(remedy, "%s") {
		remedy = fmt.Sprintf(remedy, stream)
	}
	return events.Errorf(events.CodeLogUnsafe, "stream %s: setting %s is %s, must be %s; remedy: %s", stream, name, found, want, remedy).
		With("setting", name).With("found", found).With("wanted", want).With("remedy", remedy)
}

// spans are rising, separate ranges of positions, both ends included.
type spans [][2]uint64

// parseHoles reads the value of MetaHoles.
func parseHoles(text string) (spans, error) {
	var out spans
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 63)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(to, 10, 63)
		}
		if err != nil || a == 0 || b < a || len(out) > 0 && a <= out[len(out)-1][1] {
			return nil, fmt.Errorf("metadata %s: %q is not a list of rising positions and ranges", MetaHoles, text)
		}
		out = append(out, [2]uint64{a, b})
	}
	return out, nil
}

// FormatHoles writes rising positions as the value of MetaHoles.
func FormatHoles(positions []uint64) string { return spansOf(positions).String() }

func spansOf(positions []uint64) (out spans) {
	for _, p := range positions {
		if n := len(out); n > 0 && out[n-1][1]+1 == p {
			out[n-1][1] = p
		} else {
			out = append(out, [2]uint64{p, p})
		}
	}
	return out
}

func (s spans) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = strconv.FormatUint(r[0], 10)
		if r[1] > r[0] {
			parts[i] += "-" + strconv.FormatUint(r[1], 10)
		}
	}
	return strings.Join(parts, ",")
}

// count is how many positions the spans hold up to last.
func (s spans) count(last uint64) (n uint64) {
	for _, r := range s {
		if r[0] <= last {
			n += min(r[1], last) - r[0] + 1
		}
	}
	return n
}

func (s spans) contains(position uint64) bool {
	_, found := slices.BinarySearchFunc(s, position, func(r [2]uint64, p uint64) int {
		switch {
		case r[1] < p:
			return -1
		case r[0] > p:
			return 1
		}
		return 0
	})
	return found
}
