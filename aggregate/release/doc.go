// Package release decides which release session goes on, and how.
//
//   - A Ledger is all release sessions of an instance with its release authority:
//     one boundary, since its invariants span sessions.
//   - A Document is one session as it was received or written: JSON whose members
//     keep their bytes, with a view of those that the rules use.
//   - A phase is where a session stands; a Gate is a receipt that a phase needs.
//   - A Command is one of the verbs of the specification, part 2, and of design
//     section 5.
//
// What others own (lanes, releases, candidates, transactions, texts of receipts)
// is data: it is kept as given and looked at only where a rule says so. A member
// that is null counts as missing.
package release
