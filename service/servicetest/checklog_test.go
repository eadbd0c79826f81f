package servicetest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/service/servicetest"
)

// failures takes what a check says of a test.
type failures struct {
	testing.TB
	said []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func TestCheckLog(t *testing.T) {
	n, e := servicetest.Embedded(t)
	nc := servicetest.Caller(t, e)
	if r := servicetest.CheckLog(t, n.Log); r == nil || r.Commits != 0 {
		t.Errorf("an empty log: %+v", r)
	}
	for i := range 5 {
		servicetest.MustAsk(t, nc, "forge.op.main.ops.work.set-state", map[string]any{"workId": "w1", "state": fmt.Sprint(i), "reason": "test"})
	}
	if r := servicetest.CheckLog(t, n.Log); r == nil || r.Commits != 5 || r.Boundaries != 1 {
		t.Errorf("a good log: %+v", r)
	}

	// A commit that no decider made.
	n.Unchecked = "poisoned below"
	chain := logtest.WorkChain(n.Log, "w2")
	c := chain.Commit("c1", 0)
	c.At = n.Clock.Now()
	if _, err := n.Log.Append(t.Context(), chain.Entry(c)); err != nil {
		t.Fatal(err)
	}
	f := &failures{TB: t}
	if r := servicetest.CheckLog(f, n.Log); r == nil || r.Commits != 5 || len(f.said) != 1 || !strings.Contains(f.said[0], "position 6 on forge.log.main.work.w2: encoding: ") {
		t.Errorf("a poisoned log: %+v, %q", r, f.said)
	}

	// A log that cannot be read is not a good one.
	n.Log.Close()
	f = &failures{TB: t}
	servicetest.CheckLog(f, n.Log)
	if len(f.said) != 1 {
		t.Errorf("a closed log: %q", f.said)
	}
}
