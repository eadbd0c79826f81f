package eventlog_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

// Every setting that the server tells of is looked at, those too that this
// version has never heard of.
func TestEverySettingIsChecked(t *testing.T) {
	_, l := logtest.OpenEmbedded(t)
	info, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg := eventlog.Config{Replicas: 1}
	if err := eventlog.Lossy(cfg, info.Settings); err != nil {
		t.Fatalf("the settings of a new log: %v", err)
	}
	harmless := map[string]bool{"description": true, "placement": true, "metadata": true}
	for _, name := range append(eventlog.SettingNames(), "never_heard_of") {
		bad := maps.Clone(info.Settings)
		bad[name] = json.RawMessage(`{"strange":1}`)
		err := eventlog.Lossy(cfg, bad)
		if harmless[name] {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		e := wantCode(t, err, events.CodeLogUnsafe)
		if e.Details["setting"] != name || e.Details["remedy"] == "" || strings.Contains(e.Message, "%") {
			t.Errorf("%s: %v, details %v", name, err, e.Details)
		}
	}
	off := maps.Clone(info.Settings)
	off["never_heard_of"] = json.RawMessage(`{"deep":{"zero":0,"no":false,"none":[],"empty":"","null":null}}`)
	if err := eventlog.Lossy(cfg, off); err != nil {
		t.Errorf("an unknown setting that is off: %v", err)
	}
	for _, name := range []string{"deny_delete", "deny_purge", "allow_direct", "allow_atomic", "max_msgs", "max_bytes", "subjects", "duplicate_window"} {
		bad := maps.Clone(info.Settings)
		delete(bad, name)
		wantSetting(t, eventlog.Lossy(cfg, bad), name)
	}
}

func TestHolesText(t *testing.T) {
	for text, want := range map[string]uint64{"": 0, "3": 1, "1-4": 4, "2,4-6,9": 5, "8-12": 3, "11": 0} {
		n, back, err := eventlog.CountHoles(text, 10)
		if err != nil || n != want || back != text {
			t.Errorf("%q: %d, %q, %v", text, n, back, err)
		}
	}
	for _, text := range []string{"0", "x", "4-2", "3,3", "5,4", "1-3,2", "1-", "-1", ","} {
		if _, _, err := eventlog.CountHoles(text, 10); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if got := eventlog.FormatHoles([]uint64{1, 2, 3, 7, 9, 10}); got != "1-3,7,9-10" {
		t.Errorf("formatted %q", got)
	}
}

func TestOpenNeeds(t *testing.T) {
	e := logtest.Embedded(t)
	nc := logtest.ForgeConn(t, e)
	_, err := eventlog.Open(t.Context(), nc, eventlog.Config{Replicas: 1})
	wantCode(t, err, events.CodeBadRequest) // no MaxBytes, not embedded
	_, err = eventlog.Open(t.Context(), nc, eventlog.Config{ReadOnly: true})
	wantCode(t, err, events.CodeNotFound)
	_, err = eventlog.Open(t.Context(), nc, eventlog.Config{Instance: "No"})
	wantCode(t, err, events.CodeIDInvalid)
	_, err = eventlog.Open(t.Context(), nc, eventlog.Config{Replicas: -1})
	wantCode(t, err, events.CodeBadRequest)
	_, err = eventlog.Open(t.Context(), nc, eventlog.Config{Replicas: 3, MaxBytes: 1 << 20})
	wantCode(t, err, events.CodeUnavailable)
	if l, err := eventlog.Open(t.Context(), nc, eventlog.Config{Replicas: 1, MaxBytes: 1 << 60}); err == nil {
		l.Close() // the embedded server reserves nothing of the disk
	} else {
		t.Errorf("a log larger than the disk: %v", err)
	}
}
