package events

import (
	"errors"
	"fmt"
	"maps"
)

// Code is the stable name of an error. It is the contract: the message after it
// is for people and may change.
type Code string

// The codes of the rules (specification part 1 and 2).
const (
	CodeIdentityRequired          Code = "CONTROLLER_SESSION_IDENTITY_REQUIRED"
	CodeResumeAuthorityRequired   Code = "CONTROLLER_RESUME_AUTHORITY_REQUIRED"
	CodeSessionIDCollision        Code = "CONTROLLER_SESSION_ID_COLLISION"
	CodeClaimTerminal             Code = "WORK_CONTROLLER_CLAIM_TERMINAL"
	CodeClaimGenerationMismatch   Code = "WORK_CLAIM_GENERATION_MISMATCH"
	CodeAlreadyClaimed            Code = "WORK_ALREADY_CLAIMED"
	CodePrincipalMismatch         Code = "WORK_CONTROLLER_PRINCIPAL_MISMATCH"
	CodeTypeMismatch              Code = "WORK_CONTROLLER_TYPE_MISMATCH"
	CodeInstanceMismatch          Code = "WORK_CONTROLLER_INSTANCE_MISMATCH"
	CodeOwnerRequired             Code = "WORK_CONTROLLER_OWNER_REQUIRED"
	CodeOwnerMismatch             Code = "WORK_CONTROLLER_OWNER_MISMATCH"
	CodeAuthorityRequired         Code = "WORK_CONTROLLER_AUTHORITY_REQUIRED"
	CodeClaimGenerationRequired   Code = "WORK_CONTROLLER_CLAIM_GENERATION_REQUIRED"
	CodeReleaseIDInvalid          Code = "RELEASE_SESSION_ID_INVALID"
	CodeReleaseAlreadyExists      Code = "RELEASE_SESSION_ALREADY_EXISTS"
	CodeReleaseInventory          Code = "RELEASE_SESSION_INVENTORY_INCOMPLETE"
	CodeReleaseActiveExists       Code = "RELEASE_SESSION_ACTIVE_EXISTS"
	CodeReleaseLaneCollision      Code = "RELEASE_SESSION_LANE_COLLISION"
	CodeReleaseSourceRequired     Code = "RELEASE_SESSION_SOURCE_REVISION_REQUIRED"
	CodeReleaseStableIdentity     Code = "RELEASE_SESSION_STABLE_RELEASE_IDENTITY_INVALID"
	CodeReleaseInvalid            Code = "RELEASE_SESSION_INVALID"
	CodeReleaseMissing            Code = "RELEASE_SESSION_MISSING"
	CodeReleaseRevisionFenced     Code = "RELEASE_SESSION_REVISION_FENCED"
	CodeReleaseCandidateIdentity  Code = "RELEASE_SESSION_CANDIDATE_RELEASE_IDENTITY_INVALID"
	CodeReleaseCandidateImmutable Code = "RELEASE_SESSION_CANDIDATE_RELEASE_IMMUTABLE"
	CodeReleaseReceiptInvalid     Code = "RELEASE_SESSION_RECEIPT_INVALID"
	CodeReleaseTerminal           Code = "RELEASE_SESSION_TERMINAL"
	CodeReleaseRollbackBefore     Code = "RELEASE_SESSION_ROLLBACK_BEFORE_CUTOVER_ATTEMPT"
	CodeReleaseTransition         Code = "RELEASE_SESSION_TRANSITION_INVALID"
	CodeReleaseTxRequired         Code = "RELEASE_SESSION_TRANSACTION_REQUIRED"
	CodeReleaseCandidateRequired  Code = "RELEASE_SESSION_CANDIDATE_RELEASE_REQUIRED"
	CodeReleaseStaticGates        Code = "RELEASE_SESSION_STATIC_GATES_INCOMPLETE"
	CodeReleaseCanaries           Code = "RELEASE_SESSION_CANDIDATE_CANARIES_INCOMPLETE"
	CodeReleaseSoakGates          Code = "RELEASE_SESSION_SOAK_GATES_INCOMPLETE"
	CodeReleaseTxAttempting       Code = "RELEASE_SESSION_TRANSACTION_REQUIRES_CUTOVER_ATTEMPTING"
	CodeReleaseTxConflict         Code = "RELEASE_SESSION_TRANSACTION_CONFLICT"
	CodeReleaseTxInvalid          Code = "RELEASE_SESSION_TRANSACTION_INVALID"
	CodeReleaseMigrationJSON      Code = "RELEASE_SESSION_MIGRATION_INVALID_JSON"
	CodeReleaseMigrationSchema    Code = "RELEASE_SESSION_MIGRATION_UNSUPPORTED_SCHEMA"
	CodeReleaseMigrationUnproven  Code = "RELEASE_SESSION_MIGRATION_HISTORICAL_ACCEPTANCE_UNPROVEN"
	CodeReleaseMigrationAuthority Code = "RELEASE_SESSION_MIGRATION_AUTHORITY_MISMATCH"
)

// The codes of the service: a closed list.
const (
	CodeBadRequest      Code = "FORGE_BAD_REQUEST"
	CodeIDInvalid       Code = "FORGE_ID_INVALID"
	CodeReasonRequired  Code = "FORGE_REASON_REQUIRED"
	CodeForbidden       Code = "FORGE_FORBIDDEN"
	CodeCallerMismatch  Code = "FORGE_PRINCIPAL_MISMATCH"
	CodeNotFound        Code = "FORGE_NOT_FOUND"
	CodeUnknownVerb     Code = "FORGE_UNKNOWN_VERB"
	CodeVersionConflict Code = "FORGE_VERSION_CONFLICT"
	CodeContention      Code = "FORGE_CONTENTION"
	CodeCommandIDReused Code = "FORGE_COMMAND_ID_REUSED"
	CodeTooLarge        Code = "FORGE_TOO_LARGE"
	CodeBusy            Code = "FORGE_BUSY"
	CodePoisoned        Code = "FORGE_POISONED"
	CodeLogUnsafe       Code = "FORGE_LOG_UNSAFE"
	CodeUnavailable     Code = "FORGE_UNAVAILABLE"
	CodeClockSkew       Code = "FORGE_CLOCK_SKEW"
	CodeViewBehind      Code = "FORGE_VIEW_BEHIND"
	CodeLogFull         Code = "FORGE_LOG_FULL"
)

// ruleNumber is what a refusal by a rule is on the wire, unless the table says
// otherwise.
const ruleNumber = 409

// Exit statuses of the command line.
const (
	ExitOK           = 0
	ExitError        = 1
	ExitUsage        = 2
	ExitRefused      = 3 // refused or conflict, a refused fence too
	ExitNotFound     = 4
	ExitVerification = 5
)

// Sentinels, for errors.Is. They wrap ErrForge.
var (
	ErrForge           = errors.New("forge")
	ErrBadRequest      = sentinel("bad request")
	ErrForbidden       = sentinel("forbidden")
	ErrNotFound        = sentinel("not found")
	ErrRefused         = sentinel("refused by a rule")
	ErrConflict        = sentinel("conflict")
	ErrCommandIDReused = sentinel("command id reused")
	ErrTooLarge        = sentinel("too large")
	ErrBusy            = sentinel("busy")
	ErrPoisoned        = sentinel("poisoned")
	ErrLogUnsafe       = sentinel("log unsafe")
	ErrUnavailable     = sentinel("unavailable")
	ErrClockSkew       = sentinel("clock skew")
	ErrViewBehind      = sentinel("view behind")
	ErrLogFull         = sentinel("log full")
)

func sentinel(text string) error { return fmt.Errorf("%w: %s", ErrForge, text) }

// CodeInfo is a row of the one table: what a code is on the wire (Number, as
// in HTTP), for a shell (Exit), and for errors.Is (Sentinel).
type CodeInfo struct {
	Code     Code
	Number   int
	Exit     int
	Sentinel error
}

// codeTable holds every code that is not 409 / exit 3 / ErrRefused.
var codeTable = map[Code]CodeInfo{
	CodeIdentityRequired:        {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeResumeAuthorityRequired: {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeAuthorityRequired:       {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeReleaseIDInvalid:        {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeReleaseSourceRequired:   {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeReleaseReceiptInvalid:   {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeReleaseMissing:          {Number: 404, Exit: ExitNotFound, Sentinel: ErrNotFound},

	CodeBadRequest:      {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeIDInvalid:       {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeReasonRequired:  {Number: 400, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeForbidden:       {Number: 403, Exit: ExitRefused, Sentinel: ErrForbidden},
	CodeCallerMismatch:  {Number: 403, Exit: ExitRefused, Sentinel: ErrForbidden},
	CodeNotFound:        {Number: 404, Exit: ExitNotFound, Sentinel: ErrNotFound},
	CodeUnknownVerb:     {Number: 404, Exit: ExitUsage, Sentinel: ErrBadRequest},
	CodeVersionConflict: {Number: 409, Exit: ExitRefused, Sentinel: ErrConflict},
	CodeContention:      {Number: 409, Exit: ExitRefused, Sentinel: ErrConflict},
	CodeCommandIDReused: {Number: 409, Exit: ExitRefused, Sentinel: ErrCommandIDReused},
	CodeTooLarge:        {Number: 413, Exit: ExitUsage, Sentinel: ErrTooLarge},
	CodeBusy:            {Number: 429, Exit: ExitError, Sentinel: ErrBusy},
	CodePoisoned:        {Number: 500, Exit: ExitError, Sentinel: ErrPoisoned},
	CodeLogUnsafe:       {Number: 500, Exit: ExitVerification, Sentinel: ErrLogUnsafe},
	CodeUnavailable:     {Number: 503, Exit: ExitError, Sentinel: ErrUnavailable},
	CodeClockSkew:       {Number: 503, Exit: ExitError, Sentinel: ErrClockSkew},
	CodeViewBehind:      {Number: 504, Exit: ExitError, Sentinel: ErrViewBehind},
	CodeLogFull:         {Number: 507, Exit: ExitError, Sentinel: ErrLogFull},
}

// Info is the row of the table for a code. A code that the table does not name
// is one of a rule: 409, exit status 3, ErrRefused.
func (c Code) Info() CodeInfo {
	info, ok := codeTable[c]
	if !ok {
		info = CodeInfo{Number: ruleNumber, Exit: ExitRefused, Sentinel: ErrRefused}
	}
	info.Code = c
	return info
}

// Error is what every refusal and failure of forge-es is. Details name what
// would help: the field, the holder, the generation, the position.
type Error struct {
	Code    Code
	Message string
	Details map[string]any
	Err     error // the cause, if any; it may hold more than callers should see
}

// Errorf makes an error; a %w in the format sets the cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// With gives a copy of the error with one more detail.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	if c.Details == nil {
		c.Details = make(map[string]any, 1)
	}
	c.Details[key] = value
	return &c
}

// Error begins with the code.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches an Error of the same code, and the sentinel of the code.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code
	}
	return target == e.Code.Info().Sentinel || target == ErrForge
}

// AsError finds the Error in a chain; an error without one becomes
// FORGE_UNAVAILABLE with that cause.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeUnavailable, Message: err.Error(), Err: err}
}

// CodeOf is the code of the Error in a chain, or "" when there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
