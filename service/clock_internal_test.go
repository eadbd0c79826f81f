package service

import (
	"testing"
	"time"

	"github.com/forge-es/forge-es/events"
)

// TestSystemClock: a step of the wall clock moves nothing, is reported, and is not
// forgotten when it is taken back.
func TestSystemClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 3 * time.Second, -3 * time.Second} {
		c := NewSystemClock(DefaultMaxClockSkew)
		if err := c.Trusted(); err != nil {
			t.Fatal(err)
		}
		before := c.Now()
		c.wall = func() time.Time { return time.Now().Add(step) }
		if moved := (c.Now() - before); moved < 0 || moved > 60_000 {
			t.Errorf("a step by %s moved the clock by %d ms", step, moved)
		}
		err := c.Trusted()
		if events.CodeOf(err) != events.CodeClockSkew {
			t.Fatalf("a step by %s: %v", step, err)
		}
		if ms, _ := events.AsError(err).Details["stepMs"].(int64); (time.Duration(ms)*time.Millisecond - step).Abs() > 100*time.Millisecond {
			t.Errorf("a step by %s is reported as %d ms", step, ms)
		}
		c.wall = time.Now
		if c.Trusted() == nil {
			t.Errorf("a step by %s was forgotten", step)
		}
	}
	c := NewSystemClock(DefaultMaxClockSkew)
	c.wall = func() time.Time { return time.Now().Add(time.Second) }
	if err := c.Trusted(); err != nil {
		t.Errorf("a step within the skew: %v", err)
	}
}
