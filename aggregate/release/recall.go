package release

import (
	"github.com/forge-es/forge-es/events"
)

// Recall computes the answer of a command that was applied before, from its
// commit and the ledger after it. It equals the first answer.
func Recall(c *events.Commit, list []events.Payload, after Ledger) any {
	if c.Command.Verb == VerbMigrate {
		return recallMigration(list, after)
	}
	for _, e := range list {
		switch e := e.(type) {
		case events.ReleaseOpened:
			return session(after, e.SessionID)
		case events.ReleaseAdvanced:
			return session(after, e.SessionID)
		case events.ReleaseReceiptsRecorded:
			return session(after, e.SessionID)
		case events.ReleaseTransactionRecorded:
			return session(after, e.SessionID)
		case events.ReleaseDocumentReceived:
			if d := after.find(e.Name); d != nil {
				return d.received()
			}
		case events.AuthorityPublished:
			return Authority{Revision: e.Revision, Authority: []byte(e.Authority)}
		}
	}
	return nil
}

// session is a document as an answer, nil when there is none.
func session(l Ledger, id string) any {
	if d := l.find(id); d != nil {
		return d
	}
	return nil
}

func recallMigration(list []events.Payload, after Ledger) Migration {
	answer := Migration{MigratedSessionIDs: []string{}, CurrentSessionIDs: []string{}, Inspected: after.Len()}
	migrated := map[string]bool{}
	for _, e := range list {
		if m, ok := e.(events.ReleaseMigrated); ok {
			migrated[m.Document] = true
		}
	}
	for _, d := range after.docs {
		if migrated[d.Name] {
			answer.MigratedSessionIDs = append(answer.MigratedSessionIDs, d.Name)
		} else {
			answer.CurrentSessionIDs = append(answer.CurrentSessionIDs, d.Name)
		}
	}
	return answer
}
