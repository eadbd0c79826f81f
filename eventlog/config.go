package eventlog

import (
	"math/rand/v2"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/rs/zerolog"
)

// Config says which log to open, and how. Its zero value, with a connection to
// an external server, opens the existing log of the instance "main".
type Config struct {
	// Instance names the installation; it decides the stream and its subjects.
	// Default: events.DefaultInstance.
	Instance string

	// Embedded is the server inside this process, when the connection leads to
	// it and this process is the only writer of the log. It makes leader reads
	// cheap (there is but one server), gives MaxBytes a default, and lets a write
	// error of the disk be told from a slow server. Default: nil, an external
	// server. Danger: with other writers, or more than one server, leave it nil.
	Embedded *Embedded

	// Replicas is how many servers hold the log. A new stream gets exactly that
	// many; an existing one must have at least that many. Default: 1 when
	// embedded, else 3.
	Replicas int

	// MaxBytes is the most that the log may grow to, in bytes, when this call
	// creates it; beyond it appends fail with FORGE_LOG_FULL and reads go on. An
	// existing stream keeps its own, which may be any finite value. Default: 60 %
	// of the free space of the data directory when embedded; on an external
	// server it must be given if the stream has to be created.
	MaxBytes int64

	// LogID, if given, is the log that must be found: another one under the same
	// stream name is refused with FORGE_LOG_UNSAFE. A new stream gets it as its
	// id. Default: any, and a random id for a new stream.
	LogID string

	// ReadOnly opens the log for reading only, whatever its settings are; it
	// creates nothing. What is wrong with it is told by Err. For verify, export
	// and diagnosis. Default: false.
	ReadOnly bool

	// Domain is the JetStream domain, when the server of the log is reached
	// through a leaf node. Default: none.
	Domain string

	// MaxClockSkew is how far the time of a commit (Entry.At) may lie beyond the
	// time of the stream leader, before it is refused with FORGE_CLOCK_SKEW.
	// Default: 2 s.
	MaxClockSkew time.Duration

	// CheckEvery is the time between two checks of the settings; changes that the
	// server announces are checked at once. Default: 1 min.
	CheckEvery time.Duration

	// AppendTimeout is how long one publish may stay without an answer, before
	// its outcome is looked up and it is sent again with the same id. Default: 5 s.
	AppendTimeout time.Duration

	// ReadTimeout is how long one read may stay without an answer, before it is
	// repeated. Default: 2 s.
	ReadTimeout time.Duration

	// Patience bounds an operation whose context has no deadline. A leader
	// election takes up to 10 s. Default: 30 s.
	Patience time.Duration

	// ColdLoads is how many loads of boundaries that the caller does not know yet
	// may run at a time; the others wait. A cold load may read an 8 MB block under
	// a lock that appends need too. Default: 2.
	ColdLoads int

	// DuplicateWindow is how long the server remembers message ids. Default: 2
	// min, which is what users are promised. Danger: other values are for tests.
	DuplicateWindow time.Duration

	// OnState is called when the log becomes unsafe or stops (err says why), and
	// when it is well again (nil). Calls come one after another, from a goroutine
	// that Close waits for. Default: none.
	OnState func(err error)

	// Clock is the wall clock. Default: time.Now.
	Clock func() time.Time

	// LeaderTime replaces the measured time of the stream leader; for tests.
	// Default: none, the time is learnt from the server.
	LeaderTime func() time.Time

	// Logger gets what happens to the log as a whole; outcomes of single calls
	// are returned, not logged. Default: nothing is logged.
	Logger zerolog.Logger

	// Other than lossConfirmed and tailIdle only in tests.
	lossAfter, tailIdle time.Duration
}

// defaultMaxClockSkew, defaultCheckEvery and the others are the defaults that
// the fields of Config document.
const (
	defaultMaxClockSkew    = 2 * time.Second
	defaultCheckEvery      = time.Minute
	defaultAppendTimeout   = 5 * time.Second
	defaultReadTimeout     = 2 * time.Second
	defaultPatience        = 30 * time.Second
	defaultColdLoads       = 2
	defaultDuplicateWindow = 2 * time.Minute
)

// withDefaults fills in what the comments promise, and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Instance, events.DefaultInstance)
	if err := events.ValidInstance(c.Instance); err != nil {
		return c, err
	}
	if c.Embedded != nil {
		setDefault(&c.Replicas, 1)
	}
	setDefault(&c.Replicas, 3)
	setDefault(&c.MaxClockSkew, defaultMaxClockSkew)
	setDefault(&c.CheckEvery, defaultCheckEvery)
	setDefault(&c.AppendTimeout, defaultAppendTimeout)
	setDefault(&c.ReadTimeout, defaultReadTimeout)
	setDefault(&c.Patience, defaultPatience)
	setDefault(&c.ColdLoads, defaultColdLoads)
	setDefault(&c.DuplicateWindow, defaultDuplicateWindow)
	setDefault(&c.lossAfter, lossConfirmed)
	setDefault(&c.tailIdle, tailIdle)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Replicas < 1 || c.MaxBytes < 0 || c.ColdLoads < 1 || c.CheckEvery < 0 || c.AppendTimeout < 0 || c.ReadTimeout < 0 || c.Patience < 0 {
		return c, events.Errorf(events.CodeBadRequest, "open log: a number in the configuration is negative")
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// jitter gives a random time between least and most.
func jitter(least, most time.Duration) time.Duration {
	return least + rand.N(most-least+1)
}
