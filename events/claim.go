package events

// Causes of a new generation (ClaimGranted.Cause).
const (
	CauseFirst         = "first"          // nobody owned the work before
	CauseAfterRelease  = "after-release"  // the last owner gave it up
	CauseAfterLapse    = "after-lapse"    // the last owner's lease had ended, or it was known by identity only
	CauseRecovery      = "recovery"       // a live but silent owner was replaced
	CauseRuntimeChange = "runtime-change" // the same controller came back under another runtime
)

// Ways a claim ends (ClaimReleased.How).
const (
	ReleasedByController = "controller" // op work.release: named by controller id
	ReleasedByAuthority  = "authority"  // the owner epoch was shown
	ReleasedObserved     = "observed"   // the epoch of an observed session was shown
	ReleasedByForce      = "force"      // by an operator, with a reason
	ReleasedAtTerminal   = "terminal"   // with the work's terminal state
)

// Standing is how firmly the last known owner holds a work.
const (
	StandingHeld     = "held"     // claimed, or imported from a snapshot
	StandingReleased = "released" // the last thing that happened was a release
	StandingIdentity = "identity" // known by name only; never live, not releasable
)

// Sources of imported sessions.
const (
	SourceRecord   = "record"
	SourceFile     = "file"
	SourceRetained = "retained"
)

// ClaimGranted says that a work has a new owner epoch: a new generation.
type ClaimGranted struct {
	Cause    string    `json:"cause"`
	Owner    Session   `json:"owner"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// ClaimRenewed says that the owner of a work goes on in the same generation:
// with another lease, and perhaps another transport session or capability.
type ClaimRenewed struct {
	Owner    Session   `json:"owner"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// ClaimReleased says that the last known owner no longer holds the work.
type ClaimReleased struct {
	How        string `json:"how"`
	Generation int64  `json:"generation"` // that was released; 0 if it had none
	Reason     string `json:"reason,omitempty"`
}

// ClaimImported says that a claim of another system became the last known owner.
type ClaimImported struct {
	Source   string  `json:"source"`
	Scope    string  `json:"scope,omitempty"` // repository; empty: the whole instance
	Standing string  `json:"standing"`
	Owner    Session `json:"owner"`
}

// ClaimImportConflicted says that an imported claim contradicts the last known
// owner: the work is quarantined until an operator resolves it.
type ClaimImportConflicted struct {
	Source   string  `json:"source"`
	Scope    string  `json:"scope,omitempty"`
	Standing string  `json:"standing"`
	Owner    Session `json:"owner"`
}

// Choices of an operator about a quarantined work (ClaimImportResolved.Keep).
const (
	KeepCurrent  = "current"
	KeepImported = "imported"
)

// ClaimImportResolved says that an operator lifted the quarantine of a work.
type ClaimImportResolved struct {
	Keep       string `json:"keep"`
	Generation int64  `json:"generation"` // afterwards: the greater of both
	Reason     string `json:"reason"`
}

// Ways a work's state is set (WorkStateSet.How).
const (
	SetByTerminalize = "terminalize"
	SetByOperator    = "operator"
)

// WorkStateSet says which state a work has: "open", a terminal state, or "" for
// unknown.
type WorkStateSet struct {
	State  string `json:"state,omitempty"`
	How    string `json:"how"`
	Reason string `json:"reason,omitempty"`
}

// ImportStarted says that a snapshot of another system's claims is being taken
// over.
type ImportStarted struct {
	Source  string `json:"source"`
	Scope   string `json:"scope,omitempty"`
	Entries int64  `json:"entries"` // in the snapshot, dropped ones included
	Digest  Hash   `json:"digest"`  // SHA-256 of the canonical snapshot
}

// Evidence is what a decision relied on beyond its own boundary, so that it can
// be judged later without the request.
type Evidence struct {
	ExpectedGeneration *int64     `json:"expectedClaimGeneration,omitempty"`
	Execution          *Execution `json:"execution,omitempty"` // the owner's transport session, if looked at and known
	GraceMs            *int64     `json:"graceMs,omitempty"`   // of a recovery
	Runtime            string     `json:"currentRuntimeInstanceId,omitempty"`
	RuntimeAnnounced   bool       `json:"runtimeAnnounced,omitempty"` // Runtime was announced by an operator, not only said by the caller
}

// Execution is what is known of a transport session.
type Execution struct {
	SessionID       string  `json:"sessionId,omitempty"`
	PrincipalID     *string `json:"principalId,omitempty"`
	ActiveWorkID    *string `json:"activeWorkId,omitempty"`
	InvalidatedAt   *Time   `json:"invalidatedAt,omitempty"`
	LastValidatedAt *Time   `json:"lastValidatedAt,omitempty"`
	UpdatedAt       *Time   `json:"updatedAt,omitempty"`
}

func (e *Evidence) write(w *Writer) {
	w.Object()
	w.IntPtr("expectedGeneration", e.ExpectedGeneration)
	if x := e.Execution; x != nil {
		w.Key("execution")
		w.Object()
		w.OptText("sessionId", x.SessionID)
		w.TextPtr("principalId", x.PrincipalID)
		w.TextPtr("activeWorkId", x.ActiveWorkID)
		w.TimePtr("invalidatedAt", x.InvalidatedAt)
		w.TimePtr("lastValidatedAt", x.LastValidatedAt)
		w.TimePtr("updatedAt", x.UpdatedAt)
		w.End()
	}
	w.IntPtr("graceMs", e.GraceMs)
	w.OptText("runtime", e.Runtime)
	w.OptBool("runtimeAnnounced", e.RuntimeAnnounced)
	w.End()
}

func readEvidence(r *Reader) *Evidence {
	o := r.Object("evidence")
	e := &Evidence{ExpectedGeneration: o.IntPtr("expectedGeneration")}
	if o.Has("execution") {
		x := r.Object("execution")
		e.Execution = &Execution{
			SessionID:       x.OptText("sessionId"),
			PrincipalID:     x.TextPtr("principalId"),
			ActiveWorkID:    x.TextPtr("activeWorkId"),
			InvalidatedAt:   x.TimePtr("invalidatedAt"),
			LastValidatedAt: x.TimePtr("lastValidatedAt"),
			UpdatedAt:       x.TimePtr("updatedAt"),
		}
		x.End()
	}
	e.GraceMs = o.IntPtr("graceMs")
	e.Runtime = o.OptText("runtime")
	e.RuntimeAnnounced = o.OptBool("runtimeAnnounced")
	o.End()
	return e
}

func writeOwner(w *Writer, s *Session, e *Evidence) {
	w.Key("owner")
	s.Write(w)
	if e != nil {
		w.Key("evidence")
		e.write(w)
	}
}

func readOwner(o *Object) (s Session, e *Evidence) {
	if o.Need("owner") {
		s = *ReadSession(o.r)
	}
	if o.Has("evidence") {
		e = readEvidence(o.r)
	}
	return s, e
}

func (ClaimGranted) EventType() (string, int) { return "claim.granted", 1 }
func (e ClaimGranted) write(w *Writer) {
	w.Text("cause", e.Cause)
	writeOwner(w, &e.Owner, e.Evidence)
}

func readClaimGranted(o *Object) Payload {
	e := ClaimGranted{Cause: o.OneOf("cause", CauseFirst, CauseAfterRelease, CauseAfterLapse, CauseRecovery, CauseRuntimeChange)}
	e.Owner, e.Evidence = readOwner(o)
	return e
}

func (ClaimRenewed) EventType() (string, int) { return "claim.renewed", 1 }
func (e ClaimRenewed) write(w *Writer)        { writeOwner(w, &e.Owner, e.Evidence) }

func readClaimRenewed(o *Object) Payload {
	var e ClaimRenewed
	e.Owner, e.Evidence = readOwner(o)
	return e
}

func (ClaimReleased) EventType() (string, int) { return "claim.released", 1 }
func (e ClaimReleased) write(w *Writer) {
	w.Text("how", e.How)
	w.Int("generation", e.Generation)
	w.OptText("reason", e.Reason)
}

func readClaimReleased(o *Object) Payload {
	return ClaimReleased{
		How:        o.OneOf("how", ReleasedByController, ReleasedByAuthority, ReleasedObserved, ReleasedByForce, ReleasedAtTerminal),
		Generation: o.Int("generation"),
		Reason:     o.OptText("reason"),
	}
}

func writeImported(w *Writer, source, scope, standing string, owner *Session) {
	w.Text("source", source)
	w.OptText("scope", scope)
	w.Text("standing", standing)
	w.Key("owner")
	owner.Write(w)
}

func readImported(o *Object) (e ClaimImported) {
	e.Source = o.OneOf("source", SourceRecord, SourceFile, SourceRetained)
	e.Scope = o.OptText("scope")
	e.Standing = o.OneOf("standing", StandingHeld, StandingReleased, StandingIdentity)
	if o.Need("owner") {
		e.Owner = *ReadSession(o.r)
	}
	return e
}

func (ClaimImported) EventType() (string, int) { return "claim.imported", 1 }
func (e ClaimImported) write(w *Writer) {
	writeImported(w, e.Source, e.Scope, e.Standing, &e.Owner)
}
func readClaimImported(o *Object) Payload { return readImported(o) }

func (ClaimImportConflicted) EventType() (string, int) { return "claim.import-conflicted", 1 }
func (e ClaimImportConflicted) write(w *Writer) {
	writeImported(w, e.Source, e.Scope, e.Standing, &e.Owner)
}
func readClaimImportConflicted(o *Object) Payload { return ClaimImportConflicted(readImported(o)) }

func (ClaimImportResolved) EventType() (string, int) { return "claim.import-resolved", 1 }
func (e ClaimImportResolved) write(w *Writer) {
	w.Text("keep", e.Keep)
	w.Int("generation", e.Generation)
	w.Text("reason", e.Reason)
}

func readClaimImportResolved(o *Object) Payload {
	return ClaimImportResolved{
		Keep:       o.OneOf("keep", KeepCurrent, KeepImported),
		Generation: o.Int("generation"),
		Reason:     o.Text("reason"),
	}
}

func (WorkStateSet) EventType() (string, int) { return "work.state-set", 1 }
func (e WorkStateSet) write(w *Writer) {
	w.OptText("state", e.State)
	w.Text("how", e.How)
	w.OptText("reason", e.Reason)
}

func readWorkStateSet(o *Object) Payload {
	return WorkStateSet{
		State:  o.OptText("state"),
		How:    o.OneOf("how", SetByTerminalize, SetByOperator),
		Reason: o.OptText("reason"),
	}
}

func (ImportStarted) EventType() (string, int) { return "import.started", 1 }
func (e ImportStarted) write(w *Writer) {
	w.Text("source", e.Source)
	w.OptText("scope", e.Scope)
	w.Int("entries", e.Entries)
	w.Bin("digest", e.Digest[:])
}

func readImportStarted(o *Object) Payload {
	return ImportStarted{
		Source:  o.OneOf("source", SourceRecord, SourceFile, SourceRetained),
		Scope:   o.OptText("scope"),
		Entries: o.Int("entries"),
		Digest:  o.Hash("digest"),
	}
}
