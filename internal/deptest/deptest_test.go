package deptest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Packages of this module are written "./events", others as they are imported.
// "p/..." is p and all below it; a space separates patterns.

// pure are the packages that decide, fold and replay. What they give must
// follow from their arguments alone, or a replay cannot repeat it.
const pure = "./events ./aggregate/... ./replay/..."

// mustExist are the packages without which this test would pass by inspecting
// nothing. Add a package here once it is in the tree.
var mustExist = []string{"./events", "./aggregate", "./aggregate/session", "./aggregate/release", "./replay", "./replay/streamfile"}

// bans: who may not reach what, directly or through others. Imports of the
// standard library count only where our own packages make them: fmt imports os.
var bans = []struct{ who, what, why string }{
	{pure, "net/...", "a decision or a replay has no outward effect"},
	{pure, "os/... syscall", "a decision does not depend on files, environment or machine"},
	{pure, "math/rand/... crypto/rand hash/maphash", "the same log must fold to the same state; random values come in as arguments"},
	{pure, "github.com/nats-io/...", "decisions and folds are tested, and history verified, without a server"},
	{"./replay/...", "./eventlog", "a replay that cannot append cannot change the log it judges"},
	{"./projections", "./service", "projections follow the log and never call back into the write side"},
	{"./...", "./cmd/...", "cmd is wiring: what others need belongs into a package of its own"},
}

// limits: which packages of ours, and which packages of others, are all that
// who may reach (ours) or import (others). A package may always import what
// lies below itself. others "*" is any.
var limits = []struct{ who, ours, others, why string }{
	{"./events", "", "*", "the language of the log is understood without the rest"},
	{"./aggregate/...", "./aggregate ./events", "*", "a decider knows events and the generic fold, not another aggregate or who calls it"},
	{"./eventlog", "./events", "*", "the log stores commits and knows no rule about what they say"},
	{"./client", "./events", "github.com/nats-io/... github.com/oklog/ulid/...", "every dependency of the SDK is one more for those who use it; command ids are ULIDs, as the service makes them"},
	{"./legacy", "./client ./events", "*", "an import goes through ordinary commands, as from any other caller"},
}

// clocks are the functions that read or wait for a clock, by package. Pure
// packages may use the types of these packages.
var clocks = map[string][]string{
	"time":    {"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep", "Local", "LoadLocation"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
}

// vague names say nothing about what a package holds, so anything ends up there.
var vague = []string{"util", "utils", "common", "helpers", "types"}

func TestImports(t *testing.T) {
	g := load(t)
	for _, problem := range checkImports(g) {
		t.Error(problem)
	}
	for _, name := range mustExist {
		if len(g.match(name)) == 0 {
			t.Errorf("%s is not there: nothing of it was inspected", name)
		}
	}
}

func TestPackageNames(t *testing.T) {
	for _, p := range load(t).match("./...") {
		if slices.Contains(vague, p.clause) || slices.Contains(vague, path.Base(p.name)) {
			t.Errorf("%s: a package named %s; name it after what it holds", p.name, p.clause)
		}
	}
}

func TestPureCodeReadsNoClock(t *testing.T) {
	g := load(t)
	read := map[string]bool{}
	for _, p := range g.match(pure) {
		for _, q := range append(g.oursBelow(p), p) {
			if read[q.name] {
				continue
			}
			read[q.name] = true
			for _, file := range q.files {
				for _, use := range clockUses(file) {
					t.Errorf("%s: %s: time comes in as an argument", q.fset.Position(use.Pos()), show(use))
				}
			}
			if len(q.files) == 0 {
				t.Errorf("%s: no source file was read", q.name)
			}
		}
	}
	for _, name := range mustExist {
		if matches(pure, name) && !read[name] {
			t.Errorf("%s was not read", name)
		}
	}
}

// pkg is a package with its non-test imports.
type pkg struct {
	name    string // "./events", or the import path of a package of others
	clause  string // the name in its package clause
	imports []string

	// Only for packages of this module: what was parsed.
	fset  *token.FileSet
	files []*ast.File
}

// graph holds all packages of this module and what they depend on, by name.
type graph map[string]*pkg

// load reads the graph of the module that this test lies in.
func load(t *testing.T) graph {
	t.Helper()
	module := strings.TrimSpace(string(goList(t, "-m")))
	name := func(importPath string) string {
		if importPath == module {
			return "."
		}
		if rel, ok := strings.CutPrefix(importPath, module+"/"); ok {
			return "./" + rel
		}
		return importPath
	}

	const fields = "-json=ImportPath,Name,Dir,Imports,GoFiles,CgoFiles,IgnoredGoFiles"
	dec := json.NewDecoder(bytes.NewReader(goList(t, "-deps", fields, module+"/...")))
	g := graph{}
	for {
		var listed struct {
			ImportPath, Name, Dir                      string
			Imports, GoFiles, CgoFiles, IgnoredGoFiles []string
		}
		if err := dec.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		p := &pkg{name: name(listed.ImportPath), clause: listed.Name}
		for _, path := range listed.Imports {
			p.imports = append(p.imports, name(path))
		}
		if ours(p.name) {
			// Files that are ignored here are built on other systems.
			names := slices.Concat(listed.GoFiles, listed.CgoFiles, listed.IgnoredGoFiles)
			for _, path := range p.parse(t, listed.Dir, names) {
				if !slices.Contains(p.imports, name(path)) {
					p.imports = append(p.imports, name(path))
				}
			}
		}
		g[p.name] = p
	}
	return g
}

func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	return out
}

// parse reads the non-test files of the package and returns what they import.
// Files of another package, such as a generator kept out of the build, are left out.
func (p *pkg) parse(t *testing.T, dir string, names []string) (imports []string) {
	t.Helper()
	p.fset = token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(p.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name != p.clause {
			continue
		}
		p.files = append(p.files, file)
		for _, spec := range file.Imports {
			imports = append(imports, importPath(spec))
		}
	}
	return imports
}

// match gives the packages of this module that the patterns match, in order.
func (g graph) match(patterns string) []*pkg {
	var found []*pkg
	for _, p := range g {
		if ours(p.name) && matches(patterns, p.name) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *pkg) int { return cmp.Compare(a.name, b.name) })
	return found
}

// An edge is one import that a package reaches, with the way to it.
type edge struct {
	from, to string
	chain    string
}

// reach gives all imports that p makes, directly or through packages of ours or
// of others, the shortest way first. The standard library is not followed.
func (g graph) reach(p *pkg) []edge {
	var edges []edge
	chains := map[string]string{p.name: p.name}
	for queue := []string{p.name}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		if g[from] == nil {
			continue // imported by a file that this system does not build
		}
		for _, to := range g[from].imports {
			chain := chains[from] + " → " + to
			edges = append(edges, edge{from, to, chain})
			if _, seen := chains[to]; !seen && !standard(to) {
				chains[to] = chain
				queue = append(queue, to)
			}
		}
	}
	return edges
}

// oursBelow gives the packages of this module that p reaches.
func (g graph) oursBelow(p *pkg) []*pkg {
	var found []*pkg
	for _, e := range g.reach(p) {
		if q := g[e.to]; q != nil && ours(e.to) && !slices.Contains(found, q) {
			found = append(found, q)
		}
	}
	return found
}

func checkImports(g graph) (problems []string) {
	report := func(e edge, why string) {
		problems = append(problems, fmt.Sprintf("%s: %s", e.chain, why))
	}
	for _, ban := range bans {
		for _, p := range g.match(ban.who) {
			for _, e := range g.reach(p) {
				if standard(e.to) && !ours(e.from) {
					continue
				}
				if matches(ban.what, e.to) && !below(p.name, e.to) {
					report(e, ban.why)
				}
			}
		}
	}
	for _, limit := range limits {
		for _, p := range g.match(limit.who) {
			for _, e := range g.reach(p) {
				switch {
				case standard(e.to) || below(p.name, e.to):
				case ours(e.to):
					if !matches(limit.ours, e.to) {
						report(e, limit.why)
					}
				case ours(e.from) && below(p.name, e.from):
					if limit.others != "*" && !matches(limit.others, e.to) {
						report(e, limit.why)
					}
				}
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// ours says whether name is a package of this module.
func ours(name string) bool { return name == "." || strings.HasPrefix(name, "./") }

// standard says whether name is a package of the standard library: only there
// the first element has no dot.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

// below says whether name is root or lies below it.
func below(root, name string) bool { return name == root || strings.HasPrefix(name, root+"/") }

func matches(patterns, name string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		root, tree := strings.CutSuffix(pattern, "/...")
		if name == root || tree && below(root, name) {
			return true
		}
	}
	return false
}

func importPath(spec *ast.ImportSpec) string {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(err) // the parser took it as a string
	}
	return path
}

// clockUses finds where a file names one of clocks, called or not, under
// whatever name it imports the package. It also finds dot imports of these
// packages, behind which a use could not be told.
func clockUses(file *ast.File) (uses []ast.Node) {
	local := map[string]string{} // name in this file → import path
	for _, spec := range file.Imports {
		path := importPath(spec)
		switch {
		case clocks[path] == nil:
		case spec.Name == nil:
			local[path] = path
		case spec.Name.Name == ".":
			uses = append(uses, spec)
		default:
			local[spec.Name.Name] = path
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(clocks[local[x.Name]], sel.Sel.Name) {
			uses = append(uses, sel)
		}
		return true
	})
	return uses
}

func show(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return n.X.(*ast.Ident).Name + "." + n.Sel.Name
	case *ast.ImportSpec:
		return "import " + n.Name.Name + " " + n.Path.Value
	}
	return fmt.Sprintf("%T", n)
}

// The rules have to bite: for each line of the tables, the smallest graph that
// breaks it, directly and through a package of ours.
func TestEveryRuleBites(t *testing.T) {
	member := func(pattern string) string { return strings.Replace(pattern, "/...", "/member", 1) }
	try := func(who, what, why string) {
		t.Helper()
		direct := fake(who, what)
		through := fake(who, "./events/through", "./events/through", what)
		for _, g := range []graph{direct, through} {
			if !slices.ContainsFunc(checkImports(g), func(p string) bool {
				return strings.HasPrefix(p, who+" → ") && strings.HasSuffix(p, what+": "+why)
			}) {
				t.Errorf("%s importing %s is not found; found %q", who, what, checkImports(g))
			}
		}
	}
	for _, ban := range bans {
		for who := range strings.FieldsSeq(ban.who) {
			for what := range strings.FieldsSeq(ban.what) {
				try(member(who), member(what), ban.why)
			}
		}
	}
	for _, limit := range limits {
		for who := range strings.FieldsSeq(limit.who) {
			try(member(who), "./elsewhere", limit.why)
			if limit.others != "*" {
				g := fake(member(who), "example.com/elsewhere")
				if len(checkImports(g)) != 1 {
					t.Errorf("%s importing a package of others is not found", who)
				}
			}
		}
	}
}

func TestWhatRulesAllow(t *testing.T) {
	for _, g := range []graph{
		fake("./events", "example.com/msgpack", "example.com/msgpack", "os"),
		fake("./events", "time", "time", "os"),
		fake("./aggregate/session", "./aggregate", "./aggregate", "./events"),
		fake("./aggregate/session", "./aggregate/session/lease"),
		fake("./client", "github.com/nats-io/nats.go", "github.com/nats-io/nats.go", "example.com/compress"),
		fake("./cmd/forge-es", "./cmd/forge-es/flags"),
	} {
		if found := checkImports(g); len(found) > 0 {
			t.Errorf("found %q", found)
		}
	}
}

func TestNATSIsFoundBehindOthers(t *testing.T) {
	g := fake("./events", "example.com/ids", "example.com/ids", "github.com/nats-io/nuid")
	if found := checkImports(g); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

// fake builds a graph from pairs of importer and imported.
func fake(pairs ...string) graph {
	g := graph{}
	for i := 0; i < len(pairs); i += 2 {
		for _, name := range pairs[i : i+2] {
			if g[name] == nil {
				g[name] = &pkg{name: name, clause: path.Base(name)}
			}
		}
		g[pairs[i]].imports = append(g[pairs[i]].imports, pairs[i+1])
	}
	return g
}

func TestClockUses(t *testing.T) {
	for _, tt := range []struct {
		source string
		want   []string
	}{
		{`import "time"; func f() { _ = time.Now() }`, []string{"time.Now"}},
		{`import "time"; var now = time.Now`, []string{"time.Now"}},
		{`import wall "time"; var t = wall.NewTimer(wall.Second)`, []string{"wall.NewTimer"}},
		{`import . "time"; var t = Now()`, []string{`import . "time"`}},
		{`import "context"; var f = context.WithTimeout`, []string{"context.WithTimeout"}},
		{`import "time"; type lease struct { end time.Time }; const d = time.Second`, nil},
		{`type clock struct { Now int }; func f(time clock) int { return time.Now }`, nil},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+tt.source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, use := range clockUses(file) {
			got = append(got, show(use))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %q, want %q", tt.source, got, tt.want)
		}
	}
}
