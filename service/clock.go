package service

import (
	"fmt"
	"sync"
	"time"

	"github.com/forge-es/forge-es/events"
)

// Clock gives the service its time. Tests replace it.
type Clock interface {
	// Now is the present time.
	Now() events.Time
	// Trusted is nil, or why grants that rest on somebody else's expiry must
	// wait.
	Trusted() error
}

// SystemClock is wall time at its start plus monotonic time since: a step of the
// wall clock moves nothing. It is for concurrent use.
type SystemClock struct {
	start time.Time // carries the monotonic reading
	wall  func() time.Time
	skew  time.Duration
	mu    sync.Mutex
	step  time.Duration // largest step seen beyond skew, 0 for none
}

// DefaultMaxClockSkew is how far the wall clock may step, and a node may be ahead
// of the stream leader.
const DefaultMaxClockSkew = 2 * time.Second

// NewSystemClock starts a clock that reports steps of the wall clock beyond skew.
func NewSystemClock(skew time.Duration) *SystemClock {
	return &SystemClock{start: time.Now(), wall: time.Now, skew: skew}
}

// Now is start plus the monotonic time since.
func (c *SystemClock) Now() events.Time {
	return events.TimeOf(c.start.Add(time.Since(c.start)))
}

// Step is how far the wall clock is ahead of this clock.
func (c *SystemClock) Step() time.Duration {
	gone := time.Since(c.start)
	return c.wall().Round(0).Sub(c.start.Round(0)) - gone
}

// Trusted reports a step of the wall clock beyond the skew that was allowed. Once
// seen it stays until the process starts anew: leases were granted by a time that
// others no longer share.
func (c *SystemClock) Trusted() error {
	step := c.Step()
	c.mu.Lock()
	defer c.mu.Unlock()
	if step.Abs() > c.skew && step.Abs() > c.step.Abs() {
		c.step = step
	}
	if c.step == 0 {
		return nil
	}
	return events.Errorf(events.CodeClockSkew, "the wall clock stepped by %s", c.step.Round(time.Millisecond)).
		With("stepMs", c.step.Milliseconds()).With("maxMs", c.skew.Milliseconds()).
		With("remedy", fmt.Sprintf("restart the service once its clock is right; steps up to %s are allowed", c.skew))
}
