package kmod

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// Index is a set of modules that can be looked up by name or alias.
// The zero value is empty and ready for use.
type Index struct {
	modules map[string]*Module
	builtin map[string]bool
	aliases []alias
}

type alias struct{ pattern, module string }

// Add puts m into the index, replacing a module of the same name.
func (x *Index) Add(m Module) {
	if x.modules == nil {
		x.modules = make(map[string]*Module)
	}
	x.modules[m.Name] = &m
	for _, a := range m.Aliases {
		x.aliases = append(x.aliases, alias{Canonical(a), m.Name})
	}
}

// AddBuiltin says that the kernel has the module name compiled in.
func (x *Index) AddBuiltin(name string) {
	if x.builtin == nil {
		x.builtin = make(map[string]bool)
	}
	x.builtin[Canonical(name)] = true
}

// AddBuiltins reads a modules.builtin file: one module path a line.
func (x *Index) AddBuiltins(r io.Reader) error {
	s := bufio.NewScanner(r)
	for s.Scan() {
		if name := NameOf(s.Text()); name != "" {
			x.AddBuiltin(name)
		}
	}
	return s.Err()
}

// NameOf returns the module name that belongs to a module's file name, or ""
// where it is not one.
func NameOf(file string) string {
	base, _, ok := strings.Cut(path.Base(file), ".ko")
	if !ok {
		return ""
	}
	return Canonical(base)
}

// Modules returns all modules, sorted by name.
func (x *Index) Modules() []*Module {
	return slices.SortedFunc(maps.Values(x.modules), func(a, b *Module) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// Resolve returns the names of the modules that name stands for: the module of
// that name, or else all whose alias matches it. It returns false when there is
// neither such a module nor such a built-in one.
func (x *Index) Resolve(name string) ([]string, bool) {
	name = Canonical(name)
	if x.modules[name] != nil {
		return []string{name}, true
	}
	if x.builtin[name] {
		return nil, true
	}
	var out []string
	for _, a := range x.aliases {
		// A malformed pattern matches nothing.
		if ok, _ := path.Match(a.pattern, name); ok && !slices.Contains(out, a.module) {
			out = append(out, a.module)
		}
	}
	return out, len(out) > 0
}

// Order returns the modules that names stand for and all that they need, each
// once, each after those it depends on. It fails when a name or a hard
// dependency is unknown; soft dependencies may be absent.
func (x *Index) Order(names ...string) ([]*Module, error) {
	w := walk{index: x, seen: make(map[string]bool)}
	for _, n := range names {
		modules, ok := x.Resolve(n)
		if !ok {
			return nil, fmt.Errorf("module %s not found", n)
		}
		for _, m := range modules {
			if err := w.visit(m); err != nil {
				return nil, err
			}
		}
	}
	return w.order, nil
}

type walk struct {
	index *Index
	seen  map[string]bool
	order []*Module
}

func (w *walk) visit(name string) error {
	if w.seen[name] || w.index.builtin[name] {
		return nil
	}
	// Marked before its dependencies, so a cycle ends here.
	w.seen[name] = true
	m := w.index.modules[name]
	if m == nil {
		return fmt.Errorf("module %s not found", name)
	}
	w.soft(m.SoftPre)
	for _, d := range m.Depends {
		if err := w.visit(d); err != nil {
			return fmt.Errorf("%s needs %w", name, err)
		}
	}
	w.order = append(w.order, m)
	w.soft(m.SoftPost)
	return nil
}

func (w *walk) soft(names []string) {
	for _, n := range names {
		modules, _ := w.index.Resolve(n)
		for _, m := range modules {
			mark := len(w.order)
			if w.visit(m) != nil {
				// What it had gathered of its own dependencies is harmless,
				// but of no use.
				w.order = w.order[:mark]
			}
		}
	}
}

// Encode writes the index in the form that Decode reads.
func (x *Index) Encode(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, m := range x.Modules() {
		fmt.Fprintf(b, "module %s %s\n", m.Name, m.Path)
		list(b, "depends", m.Depends)
		list(b, "pre", m.SoftPre)
		list(b, "post", m.SoftPost)
		list(b, "alias", m.Aliases)
	}
	list(b, "builtin", slices.Sorted(maps.Keys(x.builtin)))
	return b.Flush()
}

func list(w io.Writer, key string, words []string) {
	if len(words) > 0 {
		fmt.Fprintf(w, "%s %s\n", key, strings.Join(words, " "))
	}
}

// Decode reads what Encode wrote.
func Decode(r io.Reader) (*Index, error) {
	x := new(Index)
	var m *Module
	add := func() {
		if m != nil {
			x.Add(*m)
		}
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for line := 1; s.Scan(); line++ {
		words := strings.Fields(s.Text())
		if len(words) < 2 {
			return nil, fmt.Errorf("module index line %d: too short", line)
		}
		key, words := words[0], words[1:]
		switch {
		case key == "module" && len(words) == 2:
			add()
			m = &Module{Name: words[0], Path: words[1]}
		case key == "builtin":
			for _, w := range words {
				x.AddBuiltin(w)
			}
		case m == nil:
			return nil, fmt.Errorf("module index line %d: %s before any module", line, key)
		case key == "depends":
			m.Depends = words
		case key == "pre":
			m.SoftPre = words
		case key == "post":
			m.SoftPost = words
		case key == "alias":
			m.Aliases = words
		default:
			return nil, fmt.Errorf("module index line %d: unknown key %q", line, key)
		}
	}
	add()
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("module index: %w", err)
	}
	return x, nil
}

// CopyBuiltins takes over what other knows to be built in.
func (x *Index) CopyBuiltins(other *Index) {
	for name := range other.builtin {
		x.AddBuiltin(name)
	}
}
