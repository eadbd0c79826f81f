package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Headers of an append.
const (
	headerMsgID    = "Nats-Msg-Id"
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
)

// rawSide is callers that publish to a stream and read from it themselves:
// messages with the headers and the length of commits, on as many subjects.
type rawSide struct {
	*target
	claim, renewal []byte // payloads
	fresh          atomic.Int64
	acknowledged   atomic.Int64
	last           []uint64 // sequence of each held subject, heldPerCaller of each caller
	turn           []int    // of each caller
}

func (r *rawSide) subject(n int64) string {
	return rawSubject(events.WorkSubject(events.DefaultInstance, workID(n)))
}

// heldSubject is that of a work that a caller renews.
func (r *rawSide) heldSubject(at int) string { return r.subject(int64(at)) + "-held" }

// publish appends a message to a subject that is at a sequence.
func (r *rawSide) publish(caller int, subject string, expected uint64, payload []byte) (uint64, error) {
	m := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{
		headerMsgID:    {events.NewMsgID(subject, principal(caller), nuid.Next()).String()},
		headerExpected: {strconv.FormatUint(expected, 10)},
	}}
	a, err := request(r.conn(caller), m)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if err := json.Unmarshal(a.Data, &ack); err != nil || ack.Seq == 0 || ack.Duplicate {
		return 0, fmt.Errorf("%s: %s", subject, a.Data)
	}
	r.acknowledged.Add(1)
	return ack.Seq, nil
}

// first publishes to a subject that was never used.
func (r *rawSide) first(caller int) error {
	_, err := r.publish(caller, r.subject(r.fresh.Add(1)), 0, r.claim)
	return err
}

// next publishes to a subject of the caller.
func (r *rawSide) next(caller int) error {
	at := caller*heldPerCaller + r.turn[caller]
	r.turn[caller] = (r.turn[caller] + 1) % heldPerCaller
	seq, err := r.publish(caller, r.heldSubject(at), r.last[at], r.renewal)
	r.last[at] = seq
	return err
}

// get reads the last message of a subject, as anybody may (direct get).
func (r *rawSide) get(caller int, subject string) error {
	a, err := request(r.conn(caller), &nats.Msg{Subject: "$JS.API.DIRECT.GET." + rawStream + "." + subject})
	if err == nil && a.Header.Get("Nats-Subject") != subject {
		err = fmt.Errorf("get %s: %v", subject, a.Header)
	}
	return err
}
