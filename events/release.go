package events

import "bytes"

// The events of the ledger. What others own (lanes, releases, candidates,
// transactions, receipts) is JSON as it was given; only names, phases, ids and
// outcomes are typed.

// ReleaseOpened says that a release session began, with its source frozen.
type ReleaseOpened struct {
	SessionID      string `json:"sessionId"`
	Stable         JSON   `json:"stable,omitempty"`
	StableRelease  JSON   `json:"stableRelease"`
	Candidate      JSON   `json:"candidate,omitempty"`
	SourceRevision string `json:"sourceRevision"`
	At             Time   `json:"at"`
}

// ReleaseAdvanced says that a release session moved to another phase.
type ReleaseAdvanced struct {
	SessionID        string `json:"sessionId"`
	From             string `json:"from"`
	To               string `json:"to"`
	CandidateRelease JSON   `json:"candidateRelease,omitempty"`
	Receipts         JSON   `json:"receipts,omitempty"` // a list, as stored
	Cause            string `json:"cause,omitempty"`    // CauseOperator: ended against the rules
	Reason           string `json:"reason,omitempty"`
	At               Time   `json:"at"`
}

// CauseOperator is the cause of a change that an operator made against the rules.
const CauseOperator = "operator"

// ReleaseReceiptsRecorded says that evidence arrived.
type ReleaseReceiptsRecorded struct {
	SessionID string `json:"sessionId"`
	Receipts  JSON   `json:"receipts"` // a list, as stored
	At        Time   `json:"at"`
}

// ReleaseTransactionRecorded says that the rollback authority of a cutover was
// recorded.
type ReleaseTransactionRecorded struct {
	SessionID   string `json:"sessionId"`
	Transaction JSON   `json:"transaction"`
	At          Time   `json:"at"`
}

// ReleaseDocumentReceived says that a document of another system was taken over,
// as it was: it may be no JSON.
type ReleaseDocumentReceived struct {
	Name     string `json:"name"` // without .json
	Text     []byte `json:"text"` // base64 in JSON
	Replaced bool   `json:"replaced,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// ReleaseDocumentDiscarded says that an operator removed a document.
type ReleaseDocumentDiscarded struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Outcomes of a migration (ReleaseMigrated.Outcome).
const (
	MigratedConverted  = "converted"  // brought to the present form
	MigratedReconciled = "reconciled" // given the transaction that had happened
	MigratedHistorical = "historical" // proven to have been accepted
)

// ReleaseMigrated says that a stored document was brought to the present form.
type ReleaseMigrated struct {
	Document string `json:"document"`
	Outcome  string `json:"outcome"`
	// Transaction is the rebuilt one without its rollbackRelease, which is
	// Previous of the first event of the commit that has one.
	Transaction JSON `json:"transaction,omitempty"`
	Previous    JSON `json:"previous,omitempty"`
	Receipt     JSON `json:"receipt,omitempty"`
	At          Time `json:"at"`
}

// AuthorityPublished says which release is live, by whoever owns that.
type AuthorityPublished struct {
	Revision int64 `json:"revision"`
	// Authority is as it was published, except that a fencing token is only there
	// as fencingTokenSha256.
	Authority JSON `json:"authority"`
}

// JSON is a JSON value as it was given; empty is none.
type JSON []byte

// MarshalJSON gives the value itself.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j) == 0 {
		return []byte("null"), nil
	}
	return j, nil
}

// UnmarshalJSON keeps the value as it is; null is none.
func (j *JSON) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*j = nil
		return nil
	}
	*j = bytes.Clone(b)
	return nil
}

// Kinds of JSON values, by the first byte of their canonical form.
const (
	jsonObject = '{'
	jsonList   = '['
)

// json reads a bin field that must hold a JSON value of a kind.
func (o *Object) json(name string, kind byte) JSON {
	if !o.Need(name) {
		return nil
	}
	return o.jsonValue(name, kind)
}

// optJSON reads a JSON value of a kind that may be left out.
func (o *Object) optJSON(name string, kind byte) JSON {
	if !o.Has(name) {
		return nil
	}
	return o.jsonValue(name, kind)
}

func (o *Object) jsonValue(name string, kind byte) JSON {
	v := bytes.Clone(o.r.Bin())
	if o.r.err != nil {
		return nil
	}
	switch canon, err := CanonicalJSON(v); {
	case err != nil:
		o.r.Fail("%s: %q: %v", o.name, name, err)
	case canon[0] != kind:
		o.r.Fail("%s: %q begins with %c, not %c", o.name, name, canon[0], kind)
	}
	return v
}

func (ReleaseOpened) EventType() (string, int) { return "release.opened", 1 }
func (e ReleaseOpened) write(w *Writer) {
	w.Text("sessionId", e.SessionID)
	w.OptBin("stable", e.Stable)
	w.Bin("stableRelease", e.StableRelease)
	w.OptBin("candidate", e.Candidate)
	w.Text("sourceRevision", e.SourceRevision)
	w.Time("at", e.At)
}

func readReleaseOpened(o *Object) Payload {
	return ReleaseOpened{
		SessionID: o.Text("sessionId"), Stable: o.optJSON("stable", jsonObject), StableRelease: o.json("stableRelease", jsonObject),
		Candidate: o.optJSON("candidate", jsonObject), SourceRevision: o.Text("sourceRevision"), At: o.Time("at"),
	}
}

func (ReleaseAdvanced) EventType() (string, int) { return "release.advanced", 1 }
func (e ReleaseAdvanced) write(w *Writer) {
	w.Text("sessionId", e.SessionID)
	w.Text("from", e.From)
	w.Text("to", e.To)
	w.OptBin("candidateRelease", e.CandidateRelease)
	w.OptBin("receipts", e.Receipts)
	w.OptText("cause", e.Cause)
	w.OptText("reason", e.Reason)
	w.Time("at", e.At)
}

func readReleaseAdvanced(o *Object) Payload {
	return ReleaseAdvanced{
		SessionID: o.Text("sessionId"), From: o.Text("from"), To: o.Text("to"), CandidateRelease: o.optJSON("candidateRelease", jsonObject),
		Receipts: o.optJSON("receipts", jsonList), Cause: o.OptText("cause"), Reason: o.OptText("reason"), At: o.Time("at"),
	}
}

func (ReleaseReceiptsRecorded) EventType() (string, int) { return "release.receipts-recorded", 1 }
func (e ReleaseReceiptsRecorded) write(w *Writer) {
	w.Text("sessionId", e.SessionID)
	w.Bin("receipts", e.Receipts)
	w.Time("at", e.At)
}

func readReleaseReceiptsRecorded(o *Object) Payload {
	return ReleaseReceiptsRecorded{SessionID: o.Text("sessionId"), Receipts: o.json("receipts", jsonList), At: o.Time("at")}
}

func (ReleaseTransactionRecorded) EventType() (string, int) {
	return "release.transaction-recorded", 1
}

func (e ReleaseTransactionRecorded) write(w *Writer) {
	w.Text("sessionId", e.SessionID)
	w.Bin("transaction", e.Transaction)
	w.Time("at", e.At)
}

func readReleaseTransactionRecorded(o *Object) Payload {
	return ReleaseTransactionRecorded{SessionID: o.Text("sessionId"), Transaction: o.json("transaction", jsonObject), At: o.Time("at")}
}

func (ReleaseDocumentReceived) EventType() (string, int) { return "release.document-received", 1 }
func (e ReleaseDocumentReceived) write(w *Writer) {
	w.Text("name", e.Name)
	w.Bin("text", e.Text)
	w.OptBool("replaced", e.Replaced)
	w.OptText("reason", e.Reason)
}

func readReleaseDocumentReceived(o *Object) Payload {
	return ReleaseDocumentReceived{
		Name: o.Text("name"), Text: append([]byte{}, o.Bin("text")...), Replaced: o.OptBool("replaced"), Reason: o.OptText("reason"),
	}
}

func (ReleaseDocumentDiscarded) EventType() (string, int) { return "release.document-discarded", 1 }
func (e ReleaseDocumentDiscarded) write(w *Writer) {
	w.Text("name", e.Name)
	w.Text("reason", e.Reason)
}

func readReleaseDocumentDiscarded(o *Object) Payload {
	return ReleaseDocumentDiscarded{Name: o.Text("name"), Reason: o.Text("reason")}
}

func (ReleaseMigrated) EventType() (string, int) { return "release.migrated", 1 }
func (e ReleaseMigrated) write(w *Writer) {
	w.Text("document", e.Document)
	w.Text("outcome", e.Outcome)
	w.OptBin("transaction", e.Transaction)
	w.OptBin("previous", e.Previous)
	w.OptBin("receipt", e.Receipt)
	w.Time("at", e.At)
}

func readReleaseMigrated(o *Object) Payload {
	return ReleaseMigrated{
		Document: o.Text("document"), Outcome: o.OneOf("outcome", MigratedConverted, MigratedReconciled, MigratedHistorical),
		Transaction: o.optJSON("transaction", jsonObject), Previous: o.optJSON("previous", jsonObject), Receipt: o.optJSON("receipt", jsonObject), At: o.Time("at"),
	}
}

func (AuthorityPublished) EventType() (string, int) { return "authority.published", 1 }
func (e AuthorityPublished) write(w *Writer) {
	w.Int("revision", e.Revision)
	w.Bin("authority", e.Authority)
}

func readAuthorityPublished(o *Object) Payload {
	return AuthorityPublished{Revision: o.Int("revision"), Authority: o.json("authority", jsonObject)}
}
