// Bench measures the service beside what it stands on: claims, renewals and
// queries through forge-es, and bare JetStream publishes and reads of the same
// shape, on the same server, in turns.
//
//   - The target is a process of its own, started by this one: the embedded
//     server, the log, the service, and a second stream with the settings of the
//     log that callers may publish to (target.go, child.go).
//   - An op is one request of one caller, over TCP (service.go, raw.go).
//   - A cell drives an op with some callers for some time (load.go).
//   - A row has cells of both sides, round after round: A B A B … (row.go).
//   - A section is a target setting and its rows (sections.go).
//
// Nothing is asserted about times. What is asserted: every request is answered
// as it should be, and at the end of a target both streams hold exactly what was
// acknowledged.
package main
