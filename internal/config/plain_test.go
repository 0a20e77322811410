package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dump prints a tree with every position.
func dump(n *node) string {
	var b strings.Builder
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		fmt.Fprintf(&b, "%s%d:%d kind=%d quoted=%v %q\n", strings.Repeat("  ", depth), n.line, n.col, n.kind, n.quoted, n.value)
		for c := n.first; c != nil; c = c.next {
			walk(c, depth+1)
		}
	}
	walk(n, 0)
	return b.String()
}

var plainSeeds = []string{
	"a: b\n",
	"a:\nb: c",
	"a:\n  b: c # x\n  d:\n    - e\n    - f: g\n      h: \"i j\"\n\n# end\n",
	"a:\n- b\n- c: d\n  e:\n  - f\ng: 'h'\n",
	"  a: {b: c, d: [e, 10.0.0.1:80], f: {}, g: []}\n  h: []\n",
	"a: b: c\n",
	"a: b\n  c\n",
	"a: b\n  c: d\n",
	"a:\n    b: c\n  d: e\n",
	"a: \"b\" c\n",
	"a: 'b''c'\n",
	"a: b#c #d\n",
	"a: {b: c}#d\n",
	"a: {b: c} #d\n",
	"a: [b , c ]\n",
	"a: [b, c]: d\n",
	"a: {b:c}\n",
	"a: {b: 'c':d}\n",
	"a: [\"b\": c]\n",
	"a: [b: c]\n",
	"a: [b c]\n",
	"a: [b,\n c]\n",
	"- a\n- b\n",
	"a:\n  - b\n  c: d\n",
	"a:\n - b\n- c\n",
	"a: é # ü\nb: c\n",
	"a: b # ü\nc: d\n",
	"--- \na: b\n",
	"a: b\n---\nc: d\n",
	"a: b\n...\n",
	"a:\tb\n",
	"a: b\t\n",
	"a: b \t# c\n",
	"\ta: b\n",
	"a: b\n\t\nc: d\n",
	"a: b\n \t# x\nc: d\n",
	"a: b\r\nc: d\r\n",
	"a: &x b\nc: *x\n",
	"<<: {a: b}\n",
	"a: !!str b\n",
	"a: |\n  b\n",
	"a: >\n  b\n",
	"a: - b\n",
	"a: -\n",
	"a: [-1, ~]\n",
	"a: -1\nb: {c: -20, d: -e}\nf: [-]\n",
	"-a: b\n",
	"a: --- b\n",
	"a: null\nb: ~\nc: 0x1f\n",
	"a: b\u2028c: d\n",
	"a: # b\nc: d\n",
	"a:#b\nc: d\n",
	"a: {}\nb: {c: {d: {e: f}}}\n",
	"? a\n: b\n",
	"a: ? b\n",
	"a: b, c\n",
	"a: b]\n",
	"a: b }\n",
	"a: [b]]\n",
	"a:\n  -\n  - b\n",
	"a:\n  - - b\n",
	"a:\n  - b:\n    - c\n    d: e\n",
	"a:\n  - b:\n      c: d\n    e: f\n",
	"a:\n  - b: c\n   d: e\n",
	"null: a\n1: b\n",
	"a.b-c_d: e\n",
	"a: http://x/y\nb: [http://x/y]\n",
	"a: [1:]\n",
	"a: 1:\n",
	"a: b\n\n\n\n   \n",
	"a: %b\n%c: d\n",
	"a: @b\n",
	"a: \"b\n  c\"\n",
	"a : b\n",
	"a:  b  \n",
	"a: [ ]\nb: { }\n",
	"a: [b,]\n",
	"a: {b: }\n",
	"a: {b: , c: d}\n",
	"a: /b/c\n_d: _e\n",
}

// Files as people write them do not need the library.
func TestPlainAccepts(t *testing.T) {
	for _, text := range []string{
		string(large(2, 2)),
		"a: b",
		"# über\na: b # über\n\n\nc: d\n",
		"a:\n- b\n- c: d\n  e: f\ng: h\n",
		"a:\n  - b: {c: d, e: [f, \"g h\"], i: '[2001:db8::1]:80'}\n    j:\n",
		"a: -1\nb: 0x1f\nc: []\nd: {}\ne: /f/g\n",
		"a: b c, d [e] {f} #g\n",
		"  a: b\n  c:\n      d: e\n",
	} {
		if !comparePlain(t, text) {
			t.Errorf("the plain reader leaves this to the library: %q", text)
		}
	}
}

// comparePlain holds the plain reader to the library.
func comparePlain(t *testing.T, text string) (accepted bool) {
	t.Helper()
	if plain, err := checkText("x", []byte(text)); !plain || err != nil {
		return false
	}
	got, ok := readPlain(text)
	if !ok {
		return false
	}
	want, errs := readYAML("x", []byte(text))
	if errs != nil {
		t.Fatalf("the plain reader accepts %q, the library says: %v", text, errs)
	}
	if diff := cmp.Diff(dump(want), dump(got)); diff != "" {
		t.Fatalf("tree of %q (-library +plain):\n%s", text, diff)
	}
	return true
}

// The plain reader reads what it accepts exactly as the YAML library does.
func FuzzPlain(f *testing.F) {
	for _, s := range plainSeeds {
		f.Add(s)
	}
	for _, path := range goodFiles(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		comparePlain(t, text)
	})
}

// It does so for files that are nearly right, too.
func TestPlainMutations(t *testing.T) {
	accepted := 0
	for _, path := range goodFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 4000 {
			continue // the time grows with the square
		}
		lines := strings.SplitAfter(string(data), "\n")
		for i, line := range lines {
			body := strings.TrimSuffix(line, "\n")
			trimmed := strings.TrimLeft(body, " ")
			indent := len(body) - len(trimmed)
			for _, mutant := range []string{
				"",
				line + line,
				" " + line,
				"  " + line,
				strings.TrimPrefix(line, " "),
				strings.TrimPrefix(line, "  "),
				trimmed + "\n",
				body + " # comment\n",
				body + "# no comment\n",
				body + ":\n",
				body + " x\n",
				body + ": y\n",
				body + " \t\n",
				body[:indent] + "- " + trimmed + "\n",
				body[:indent] + "x\n" + line,
				body[:indent] + "-\n" + line,
				"#" + line,
				strings.Replace(line, ":", "", 1),
				strings.Replace(line, ": ", ":", 1),
				strings.Replace(line, ": ", ":\n", 1),
				strings.Replace(line, "- ", "-", 1),
				strings.Replace(line, "- ", "- - ", 1),
				strings.Replace(line, "- ", "-   ", 1),
				strings.Replace(line, ",", ",\n", 1),
				strings.Replace(line, "}", "", 1),
				strings.Replace(line, "\"", "", 1),
				strings.Replace(line, "[", "[[", 1),
			} {
				text := strings.Join(lines[:i], "") + mutant + strings.Join(lines[i+1:], "")
				if comparePlain(t, text) {
					accepted++
				}
			}
		}
	}
	if accepted < 1000 {
		t.Errorf("the plain reader accepted %d mutants, want at least 1000", accepted)
	}
	t.Logf("the plain reader accepted %d mutants", accepted)
}
