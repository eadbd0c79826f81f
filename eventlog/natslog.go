package eventlog

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// natsLog hands the messages of a NATS server to zerolog. Texts in secrets never
// get through. A fatal message does not end the process: the first one is kept,
// for a failed start is reported in no other way.
type natsLog struct {
	log     zerolog.Logger
	secrets []string

	mu    sync.Mutex
	fatal string
	died  chan struct{}
}

func newNATSLog(log zerolog.Logger, secrets ...string) *natsLog {
	return &natsLog{log: log, secrets: secrets, died: make(chan struct{})}
}

func (l *natsLog) text(format string, args []any) string {
	s := fmt.Sprintf(format, args...)
	for _, secret := range l.secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[secret]")
		}
	}
	return s
}

func (l *natsLog) Noticef(format string, v ...any) { l.log.Debug().Msg(l.text(format, v)) }
func (l *natsLog) Errorf(format string, v ...any)  { l.log.Error().Msg(l.text(format, v)) }
func (l *natsLog) Debugf(format string, v ...any)  { l.log.Trace().Msg(l.text(format, v)) }
func (l *natsLog) Tracef(format string, v ...any)  { l.log.Trace().Msg(l.text(format, v)) }

func (l *natsLog) Warnf(format string, v ...any) {
	s := l.text(format, v)
	// The passwords are in the memory of this process only, and most are random.
	if strings.HasPrefix(s, "Plaintext passwords detected") {
		l.log.Trace().Msg(s)
		return
	}
	l.log.Warn().Msg(s)
}

func (l *natsLog) Fatalf(format string, v ...any) {
	s := l.text(format, v)
	l.log.Error().Bool("fatal", true).Msg(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == "" {
		l.fatal = s
		close(l.died)
	}
}

func (l *natsLog) fatalText() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
