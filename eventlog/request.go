package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// Error codes of JetStream that this package tells apart.
const (
	codeClusterNotAvail    = 10008
	codeClusterNotLeader   = 10009
	codeAccountResources   = 10002
	codeNoResources        = 10023
	codeNoMessage          = 10037
	codeStorageResources   = 10047
	codeMessageTooLarge    = 10054
	codeStreamNotFound     = 10059
	codeWrongLast          = 10071
	codeStoreFailed        = 10077
	codeSealed             = 10109
	codeOffline            = 10118
	codeDuplicateInFlight  = 10158
	codeWrongLastInFlight  = 10164
	codeTooManyRequests    = 10167
	codeDuplicateInBatch   = 10201
	codeBatchesInFlight    = 10210
	codeOfflineWithReason  = 10194
	codeJetStreamNotActive = 10076
)

// errNoStream: the stream does not exist.
var errNoStream = errors.New("no such stream")

// apiError is an error that JetStream answered.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// transient says whether it is worth asking again: nobody answered, or one that
// could not.
func transient(err error) bool {
	var api *apiError
	if errors.As(err, &api) {
		return transientCode(api.ErrCode)
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting)
}

func transientCode(code int) bool {
	switch code {
	case codeClusterNotAvail, codeClusterNotLeader, codeOffline, codeOfflineWithReason, codeTooManyRequests, codeBatchesInFlight, codeJetStreamNotActive:
		return true
	}
	return false
}

// ask sends a request once.
func (l *Log) ask(ctx context.Context, subject string, body []byte, timeout time.Duration) (*nats.Msg, error) {
	caller := ctx
	ctx, cancel := l.connected(ctx, timeout)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, context.Canceled) && caller.Err() == nil {
		err = nats.ErrDisconnected
	}
	return m, err
}

// connected bounds a request by a time, and by the connection: an answer that was
// under way when it broke never comes.
func (l *Log) connected(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(*l.line.Load(), cancel)
	return ctx, func() { stop(); cancel() }
}

// follow keeps line a context that ends when the connection breaks.
func (l *Log) follow(ctx context.Context) {
	changes := l.nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	begin := func() context.CancelFunc {
		line, broken := context.WithCancel(ctx)
		l.line.Store(&line)
		return broken
	}
	broken := begin()
	l.done.Go(func() {
		defer func() { broken() }()
		defer l.nc.RemoveStatusListener(changes)
		for {
			select {
			case <-ctx.Done():
				return
			case status, open := <-changes:
				broken()
				if !open {
					return
				}
				if status == nats.CONNECTED {
					broken = begin()
					l.wake()
				}
			}
		}
	})
}

// api asks the JetStream API once and decodes the answer.
func (l *Log) api(ctx context.Context, subject string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	m, err := l.ask(ctx, l.prefix+subject, body, l.cfg.ReadTimeout)
	if err != nil {
		return err
	}
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("answer on %s: %w", subject, err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("answer on %s: %w", subject, err)
	}
	return nil
}

// persist repeats a read while it fails in passing and the context lasts, and
// gives the final failure its code.
func (l *Log) persist(ctx context.Context, what string, read func() error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := read()
		if err == nil {
			return nil
		}
		var coded *events.Error
		switch {
		case errors.As(err, &coded), errors.Is(err, errNoStream):
			return err
		case l.closing(), l.nc.IsClosed():
			return events.Errorf(events.CodeUnavailable, "%s: %w", what, ErrClosed)
		case !transient(err) || ctx.Err() != nil || !pause(ctx, jitter(wait/2, wait)):
			return events.Errorf(events.CodeUnavailable, "%s: %w", what, err)
		}
	}
}

// streamInfo asks the stream leader; details names every deleted position. It
// wraps errNoStream when there is no stream.
func (l *Log) streamInfo(ctx context.Context, details bool) (*streamInfo, error) {
	var info streamInfo
	err := l.persist(ctx, "state of stream "+l.stream, func() error {
		info = streamInfo{asked: time.Now()}
		err := l.api(ctx, "STREAM.INFO."+l.stream, map[string]bool{"deleted_details": details}, &info)
		info.took = time.Since(info.asked)
		var api *apiError
		if errors.As(err, &api) && api.ErrCode == codeStreamNotFound {
			return errNoStream
		}
		return err
	})
	return &info, err
}
