package events

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// declaredCodes reads the constants of type Code from the source, so that a new
// one cannot be left out below.
func declaredCodes(t *testing.T) map[string]Code {
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]Code{}
	for _, d := range file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, s := range gen.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
				continue
			}
			for i, name := range v.Names {
				text, err := strconv.Unquote(v.Values[i].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes[name.Name] = Code(text)
			}
		}
	}
	return codes
}

// The closed list of the wire contract: number, exit status, sentinel. A code of
// the rules that is not here is 409, 3, ErrRefused.
var contract = map[Code]CodeInfo{
	"CONTROLLER_SESSION_IDENTITY_REQUIRED":     {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"CONTROLLER_RESUME_AUTHORITY_REQUIRED":     {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"WORK_CONTROLLER_AUTHORITY_REQUIRED":       {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"RELEASE_SESSION_ID_INVALID":               {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"RELEASE_SESSION_SOURCE_REVISION_REQUIRED": {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"RELEASE_SESSION_RECEIPT_INVALID":          {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"RELEASE_SESSION_MISSING":                  {Number: 404, Exit: 4, Sentinel: ErrNotFound},

	"FORGE_BAD_REQUEST":        {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"FORGE_ID_INVALID":         {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"FORGE_REASON_REQUIRED":    {Number: 400, Exit: 2, Sentinel: ErrBadRequest},
	"FORGE_FORBIDDEN":          {Number: 403, Exit: 3, Sentinel: ErrForbidden},
	"FORGE_PRINCIPAL_MISMATCH": {Number: 403, Exit: 3, Sentinel: ErrForbidden},
	"FORGE_NOT_FOUND":          {Number: 404, Exit: 4, Sentinel: ErrNotFound},
	"FORGE_UNKNOWN_VERB":       {Number: 404, Exit: 2, Sentinel: ErrBadRequest},
	"FORGE_VERSION_CONFLICT":   {Number: 409, Exit: 3, Sentinel: ErrConflict},
	"FORGE_CONTENTION":         {Number: 409, Exit: 3, Sentinel: ErrConflict},
	"FORGE_COMMAND_ID_REUSED":  {Number: 409, Exit: 3, Sentinel: ErrCommandIDReused},
	"FORGE_TOO_LARGE":          {Number: 413, Exit: 2, Sentinel: ErrTooLarge},
	"FORGE_BUSY":               {Number: 429, Exit: 1, Sentinel: ErrBusy},
	"FORGE_POISONED":           {Number: 500, Exit: 1, Sentinel: ErrPoisoned},
	"FORGE_LOG_UNSAFE":         {Number: 500, Exit: 5, Sentinel: ErrLogUnsafe},
	"FORGE_UNAVAILABLE":        {Number: 503, Exit: 1, Sentinel: ErrUnavailable},
	"FORGE_CLOCK_SKEW":         {Number: 503, Exit: 1, Sentinel: ErrClockSkew},
	"FORGE_VIEW_BEHIND":        {Number: 504, Exit: 1, Sentinel: ErrViewBehind},
	"FORGE_LOG_FULL":           {Number: 507, Exit: 1, Sentinel: ErrLogFull},
}

func TestErrorTable(t *testing.T) {
	codes := declaredCodes(t)
	if len(codes) < 59 {
		t.Fatalf("only %d codes found in the source", len(codes))
	}
	seen := map[Code]string{}
	for name, code := range codes {
		if other, twice := seen[code]; twice {
			t.Errorf("%s and %s are both %s", name, other, code)
		}
		seen[code] = name
		want, listed := contract[code]
		if !listed {
			if strings.HasPrefix(string(code), "FORGE_") {
				t.Errorf("%s is not in the closed list", code)
			}
			want = CodeInfo{Number: 409, Exit: 3, Sentinel: ErrRefused}
		}
		want.Code = code
		if got := code.Info(); got != want {
			t.Errorf("%s: got %+v, want %+v", code, got, want)
		}
		if !errors.Is(want.Sentinel, ErrForge) {
			t.Errorf("%v does not wrap ErrForge", want.Sentinel)
		}
	}
	for code := range contract {
		if seen[code] == "" {
			t.Errorf("%s has no constant", code)
		}
	}
	for code := range codeTable {
		if seen[code] == "" {
			t.Errorf("the table has a row for %s, which is no constant", code)
		}
	}
}

func TestErrorIsAndAs(t *testing.T) {
	cause := errors.New("the disk is gone")
	err := error(Errorf(CodeVersionConflict, "at %d: %w", 7, cause).With("position", 7))
	wrapped := fmt.Errorf("append: %w", err)
	for name, target := range map[string]error{
		"its sentinel": ErrConflict, "the common sentinel": ErrForge, "the cause": cause, "an error of its code": &Error{Code: CodeVersionConflict},
	} {
		if !errors.Is(wrapped, target) {
			t.Errorf("it is not %s", name)
		}
	}
	for name, target := range map[string]error{
		"another sentinel": ErrRefused, "a sentinel of the same number": ErrCommandIDReused, "an error of another code": &Error{Code: CodeContention},
		"no error": nil,
	} {
		if errors.Is(wrapped, target) {
			t.Errorf("it is %s", name)
		}
	}
	var got *Error
	if !errors.As(wrapped, &got) || got.Code != CodeVersionConflict || got.Details["position"] != 7 {
		t.Errorf("got %+v", got)
	}
	if AsError(wrapped) != got || CodeOf(wrapped) != CodeVersionConflict {
		t.Error("AsError and CodeOf do not find it")
	}
	if want := "FORGE_VERSION_CONFLICT: at 7: the disk is gone"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if got := (&Error{Code: CodeBusy}).Error(); got != "FORGE_BUSY" {
		t.Errorf("got %q", got)
	}
	// What has no code is not known to be harmless.
	if e := AsError(cause); e.Code != CodeUnavailable || !errors.Is(e, cause) || CodeOf(cause) != "" {
		t.Errorf("an error without code became %+v", e)
	}
	if CodeOf(nil) != "" {
		t.Error("no error has a code")
	}
}

func TestErrorDetailsAreCopied(t *testing.T) {
	base := Errorf(CodeBusy, "busy")
	a := base.With("x", 1)
	b := a.With("x", 2).With("y", 3)
	if base.Details != nil || a.Details["x"] != 1 || len(a.Details) != 1 || b.Details["x"] != 2 || b.Details["y"] != 3 {
		t.Errorf("details are shared: %v %v %v", base.Details, a.Details, b.Details)
	}
}
