// Package legacy reads what an existing installation has on disk, and sends it
// to forge-es as ordinary operator commands.
//
//   - A Home is the controller home of the replaced system. Reading it leaves it
//     byte for byte as it was, also beside a running writer.
//   - A Group is what lies in one place under one scope: a claim snapshot (record
//     or file), retained identities, transport session activity, work states,
//     release documents, or the release authority.
//   - An Entry is one item of a Group, kept as the JSON it was found as; a release
//     document as the bytes it has.
//   - A Plan is what would be sent, in order, cut into commands; its Report is
//     the dry run.
//   - A Sender sends commands; Run sends a Plan and gives the Report of what
//     became of each entry.
//
// Caveats. Entries are data: only what routing needs is decoded, unknown fields
// and numbers of any size stay as they are, and whether a time or an id is
// acceptable is for the service to say. What cannot be read is named (Problem,
// Entry.Dropped) and does not stop the rest; but a place that may hold a claim
// record, and cannot be read, silences the older files of its scope, because a
// file counts only where no record exists. Claims carry digests of
// capabilities: reports never show entries, Plan.Commands does.
package legacy
