package eventlog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
)

// Answer lets a test answer publishes itself: answer may return nil, for the
// server to do it, or something empty, for no answer at all.
func (l *Log) Answer(answer func(*nats.Msg) []byte) {
	l.request = func(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
		data := answer(m)
		if data != nil && len(data) == 0 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if data != nil {
			return &nats.Msg{Data: data}, nil
		}
		return l.nc.RequestMsgWithContext(ctx, m)
	}
}

// Hurried makes the log believe a loss sooner, and consumers go sooner.
func Hurried(cfg Config, lossAfter, idle time.Duration) Config {
	cfg.lossAfter, cfg.tailIdle = lossAfter, idle
	return cfg
}

// Secrets are the passwords of a server.
func (e *Embedded) Secrets() []string { return e.log.secrets }

// Lossy is the check of the settings, on settings as the server tells them.
func Lossy(cfg Config, settings map[string]json.RawMessage) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	return cfg.lossy(&streamInfo{Config: settings})
}

// SettingNames are the settings that the check knows.
func SettingNames() []string {
	var names []string
	for name := range (Config{}).wanted() {
		names = append(names, name)
	}
	return names
}

// CountHoles reads metadata and counts the positions up to last.
func CountHoles(text string, last uint64) (uint64, string, error) {
	s, err := parseHoles(text)
	return s.count(last), s.String(), err
}
