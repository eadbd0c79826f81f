package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// Mode says who may answer a read.
type Mode int

const (
	// Any server that holds the log may answer: the fastest, and perhaps some
	// commits behind.
	Any Mode = iota
	// Leader asks the stream leader: no commit that was acknowledged before the
	// call is missing, except from a leader that its peers have already left (it
	// notices within about ten seconds). With Config.Embedded it is as fast as Any.
	Leader
)

// Last is the last commit on a subject, nil when there is none. Nothing about it
// is checked; Load does. Errors: FORGE_UNAVAILABLE, FORGE_LOG_UNSAFE when the
// stream is gone, FORGE_BAD_REQUEST for a subject that is no boundary of the log.
func (l *Log) Last(ctx context.Context, subject string, mode Mode) (*events.Record, error) {
	if err := l.checkSubject(subject); err != nil {
		return nil, err
	}
	return l.get(ctx, "last commit on "+subject, mode, msgRequest{LastFor: subject})
}

// At is the commit at a position, nil when there is none. It asks the leader
// when the nearest server does not have it. Errors as for Last.
func (l *Log) At(ctx context.Context, position uint64) (*events.Record, error) {
	if position == 0 {
		return nil, nil
	}
	what := "position " + strconv.FormatUint(position, 10)
	r, err := l.get(ctx, what, Any, msgRequest{Seq: position})
	if r == nil && err == nil && !l.Confirmed() {
		r, err = l.get(ctx, what, Leader, msgRequest{Seq: position})
	}
	return r, err
}

func (l *Log) checkSubject(subject string) error {
	if _, ok := events.SubjectKind(l.cfg.Instance, subject); !ok {
		return events.Errorf(events.CodeBadRequest, "%q is no boundary of instance %s", subject, l.cfg.Instance).With("subject", subject)
	}
	return nil
}

// msgRequest asks for a message: by sequence, the last on a subject, or the first
// on a subject from a sequence on.
type msgRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
	Batch   int    `json:"batch,omitempty"`
	Bytes   int    `json:"max_bytes,omitempty"`
}

func (l *Log) get(ctx context.Context, what string, mode Mode, req msgRequest) (*events.Record, error) {
	ctx, cancel := l.patience(ctx)
	defer cancel()
	var r *events.Record
	err := l.persist(ctx, what, func() (err error) {
		if mode == Any || l.Confirmed() {
			r, err = l.getDirect(ctx, req)
			if !errors.Is(err, nats.ErrNoResponders) {
				return err
			}
		}
		r, err = l.getFromLeader(ctx, req)
		return err
	})
	if err != nil {
		return nil, gone(err)
	}
	if r != nil {
		l.note(r.Position)
	}
	return r, nil
}

func (l *Log) getDirect(ctx context.Context, req msgRequest) (*events.Record, error) {
	subject, body := l.prefix+"DIRECT.GET."+l.stream, []byte(nil)
	if req.LastFor != "" {
		subject += "." + req.LastFor
	} else {
		body, _ = json.Marshal(req)
	}
	m, err := l.ask(ctx, subject, body, l.cfg.ReadTimeout)
	if err != nil {
		return nil, err
	}
	return directRecord(m)
}

// directRecord reads the answer to a direct get, nil for "not found".
func directRecord(m *nats.Msg) (*events.Record, error) {
	if status := m.Header.Get("Status"); status != "" {
		if status == "404" {
			return nil, nil
		}
		return nil, fmt.Errorf("direct get: %s %s", status, m.Header.Get("Description"))
	}
	position, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("direct get: no sequence in the answer")
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return nil, fmt.Errorf("direct get: %w", err)
	}
	r := &events.Record{Position: position, Subject: m.Header.Get("Nats-Subject"), Header: m.Header, StoredAt: at, Payload: m.Data}
	for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"} {
		delete(r.Header, added)
	}
	return r, nil
}

func (l *Log) getFromLeader(ctx context.Context, req msgRequest) (*events.Record, error) {
	var answer struct {
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err := l.api(ctx, "STREAM.MSG.GET."+l.stream, req, &answer)
	var api *apiError
	switch {
	case errors.As(err, &api) && api.ErrCode == codeNoMessage:
		return nil, nil
	case errors.As(err, &api) && api.ErrCode == codeStreamNotFound:
		l.wake()
		return nil, errNoStream
	case err != nil:
		return nil, err
	case answer.Message == nil:
		return nil, errors.New("leader read: no message in the answer")
	}
	m := answer.Message
	r := &events.Record{Position: m.Seq, Subject: m.Subject, StoredAt: m.Time, Payload: m.Data}
	if len(m.Header) > 0 {
		if r.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("leader read: headers of position %d: %w", m.Seq, err)
		}
	}
	return r, nil
}
