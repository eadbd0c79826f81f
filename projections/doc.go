// Package projections is the read side: views that are folded from the whole log,
// in order, and never decide anything.
//
//   - A Projection applies commits; it knows nothing of where they come from.
//   - A Runner feeds all projections of a node from one tail of the log; each has
//     a position, and an error of its own if a commit stopped it.
//   - Claims is the projection of live claims.
//
// Caveats: a projection is behind the log by a moment; Runner.Wait bridges it. A
// poisoned commit stops only the projections that need it.
package projections
