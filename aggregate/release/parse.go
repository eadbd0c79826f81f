package release

import (
	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Verbs of the ledger.
const (
	VerbCreate          = "release.create"
	VerbAdvance         = "release.advance"
	VerbReceipts        = "release.receipts"
	VerbTransaction     = "release.transaction"
	VerbReceiveDocument = "release.receive-document"
	VerbDiscardDocument = "release.discard-document"
	VerbEnd             = "release.end"
	VerbMigrate         = "release.migrate"
	VerbPublish         = "authority.publish"
)

var verbs = map[string]func(verb string, b *aggregate.Body) Command{
	VerbCreate: newCreate, VerbAdvance: newAdvance, VerbReceipts: newReceipts, VerbTransaction: newRecordTransaction,
	VerbReceiveDocument: newReceiveDocument, VerbDiscardDocument: newDiscardDocument, VerbEnd: newEnd, VerbMigrate: newMigrate,
	VerbPublish: newPublishAuthority,
}

// Parse makes a command of a verb and its body. It looks at no rule: fields are
// judged by Decide. An unknown verb is FORGE_UNKNOWN_VERB.
func Parse(verb string, b *aggregate.Body) (Command, error) {
	parse, ok := verbs[verb]
	if !ok {
		return nil, events.Errorf(events.CodeUnknownVerb, "%s", verb)
	}
	b.Text("actor") // a label; read here so that it is not called ignored
	return parse(verb, b), nil
}
