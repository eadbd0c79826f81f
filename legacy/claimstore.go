package legacy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxStamp is the longest updatedAt, in bytes of JSON, that is passed on.
const maxStamp = 64

// parseStore reads a claim store {schemaVersion: 1, updatedAt, sessions}. The
// error says what is wrong with the store as a whole; a broken session is an
// entry that is dropped.
func parseStore(raw []byte) (updatedAt json.RawMessage, entries []Entry, err error) {
	compact, err := compactJSON(raw)
	if err != nil {
		return nil, nil, err
	}
	members, err := splitObject(compact)
	if err != nil {
		return nil, nil, err
	}
	if err := checkVersion(members["schemaVersion"]); err != nil {
		return nil, nil, err
	}
	sessions := members["sessions"]
	if isNull(sessions) || sessions[0] != '[' {
		return nil, nil, errors.New("sessions is no array")
	}
	items := splitArray(sessions)
	entries = make([]Entry, len(items))
	for i, item := range items {
		entries[i] = parseSession(i, item)
	}
	if at := members["updatedAt"]; len(at) <= maxStamp {
		if text, ok := textOf(at); ok {
			// Written anew: what is not UTF-8 must not get into a command.
			updatedAt = appendText(nil, text)
		}
	}
	return updatedAt, entries, nil
}

// parseSession reads one session of a claim store.
func parseSession(index int, raw []byte) Entry {
	e := Entry{Index: index}
	compact, members, err := strictObject(raw)
	if err != nil {
		return e.drop(err)
	}
	return e.session(compact, members)
}

// parseRetained reads a retained identity {schemaVersion: 1, session,
// retainedAt, releasedAt?} under its key. Its work is that of its session.
func parseRetained(index int, key string, raw []byte) Entry {
	e := Entry{Index: index, Key: key, WorkID: strings.TrimSpace(key)}
	compact, members, err := strictObject(raw)
	if err != nil {
		return e.drop(err)
	}
	if err := checkVersion(members["schemaVersion"]); err != nil {
		return e.drop(err)
	}
	if isNull(members["session"]) {
		return e.drop(errors.New("session is missing"))
	}
	_, session, err := strictObject(members["session"])
	if err != nil {
		return e.drop(fmt.Errorf("session: %w", err))
	}
	e = e.session(compact, session)
	if e.Dropped == "" && e.WorkID != strings.TrimSpace(key) {
		e.Note = fmt.Sprintf("stored under key %s, its session names work %s, which counts", quote(key), quote(e.WorkID))
	}
	return e
}

// session takes raw as the entry, whose session has these members.
func (e Entry) session(raw json.RawMessage, members map[string]json.RawMessage) Entry {
	if v := members["schemaVersion"]; !isNull(v) && !isOne(v) {
		return e.drop(fmt.Errorf("schemaVersion of the session is %s, want 1", clip(string(v))))
	}
	id, ok := textOf(members["workId"])
	id = strings.TrimSpace(id)
	if !ok || id == "" {
		return e.drop(errors.New("workId of the session is missing, blank or no text"))
	}
	e.WorkID, e.Raw = id, raw
	return e
}

// activityFields are the members of a transport session that activity.set takes.
var activityFields = []string{"principalId", "activeWorkId", "invalidatedAt", "lastValidatedAt", "updatedAt"}

// parseActivity reads a transport session under its key and keeps the fields
// that count as activity; null is the same as missing.
func parseActivity(index int, key string, raw []byte) Entry {
	e := Entry{Index: index, Key: key}
	if strings.TrimSpace(key) == "" {
		return e.drop(errors.New("the session id is blank"))
	}
	_, members, err := strictObject(raw)
	if err != nil {
		return e.drop(err)
	}
	kept := []byte{'{'}
	for _, name := range activityFields {
		value := members[name]
		if isNull(value) {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(appendText(kept, name), ':')
		kept = append(kept, value...)
	}
	if len(kept) == 1 {
		return e.drop(errors.New("it holds no activity"))
	}
	e.Raw = append(kept, '}')
	work, _ := textOf(members["activeWorkId"])
	e.WorkID = strings.TrimSpace(work)
	if id, ok := textOf(members["sessionId"]); ok && strings.TrimSpace(id) != strings.TrimSpace(key) {
		e.Note = fmt.Sprintf("stored under key %s, which counts; it calls itself %s", quote(key), quote(id))
	}
	return e
}

func (e Entry) drop(err error) Entry {
	e.Raw, e.Dropped = nil, err.Error()
	return e
}

// appendText appends s as a JSON text.
func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(b, text...)
}
