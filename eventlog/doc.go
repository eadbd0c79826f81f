// Package eventlog is the log of one forge instance on NATS JetStream.
//
//   - A Log is the stream of an instance, opened: its settings are checked, and
//     go on being checked while it is open.
//   - An Entry is one commit on its way to the log; Append says what became of it:
//     Appended, a Conflict, or an error with a code.
//   - A boundary is one literal subject; Load gives its last commit, History all
//     of them, in order and chain-checked.
//   - Tail follows the whole log from a position on, without a gap.
//   - Embedded is a NATS server inside this process, with the accounts and users
//     that keep callers off the log.
//
// Caveats:
//
//   - "Durable" is what the server makes of it. An embedded server fsyncs before
//     it acknowledges (unless SyncOff is set, for tests). On an external server
//     the sync mode cannot be seen: with the default, an acknowledged commit
//     survives a killed process, not a power failure of the machine (replicas 1)
//     or of a majority (replicas 3).
//   - A leader that is cut off from its peers may answer leader reads for about
//     ten seconds more. Only an append proves that what it rests on is current.
//   - Between a change that makes the log lossy and the advisory that tells of it
//     lie a few milliseconds, in which appends still go through. DenyDelete,
//     DenyPurge and the expected positions hold in that time.
//   - Payloads of records share memory with what was received: do not change them.
package eventlog
