// Tier runs one tier of tests with go test and says how many ran.
//
//	tier NAME GO-TEST-ARGUMENTS...
//
// It passes only if at least one test ran, none failed and none was skipped: a
// tier that cannot run here must say so by failing. Output is shown for failed
// and skipped tests alone.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: tier NAME GO-TEST-ARGUMENTS...")
		os.Exit(2)
	}
	args := append([]string{"test", "-json"}, os.Args[2:]...)
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tier:", err)
		os.Exit(1)
	}
	begin := time.Now()
	t := newTally(os.Stdout)
	readErr := t.read(out)
	err = cmd.Wait()
	fmt.Printf("%s took %.0f s, the longest: %s\n", os.Args[1], time.Since(begin).Seconds(), t.longest(5))
	fmt.Printf("tier %s: %d passed, %d failed, %d skipped\n", os.Args[1], t.passed, t.failed, t.skipped)
	switch {
	case readErr != nil:
		fmt.Fprintln(os.Stderr, "tier:", readErr)
	case err != nil:
		fmt.Fprintf(os.Stderr, "tier %s: go test: %v\n", os.Args[1], err)
	case t.failed > 0:
	case t.skipped > 0:
		fmt.Fprintf(os.Stderr, "tier %s: tests were skipped\n", os.Args[1])
	case t.passed == 0:
		fmt.Fprintf(os.Stderr, "tier %s: no test ran\n", os.Args[1])
	default:
		return
	}
	os.Exit(1)
}

// event is one line of go test -json (cmd/test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	// Elapsed is in seconds.
	Elapsed float64
}

// tally counts the results of tests, subtests included.
type tally struct {
	w                       io.Writer
	output                  map[string][]string
	passed, failed, skipped int
	// took are the packages' times in seconds.
	took map[string]float64
}

func newTally(w io.Writer) *tally {
	return &tally{w: w, output: make(map[string][]string), took: make(map[string]float64)}
}

// longest names the n packages that took longest, with their seconds.
func (t *tally) longest(n int) string {
	names := slices.SortedFunc(maps.Keys(t.took), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.took[b], t.took[a]), cmp.Compare(a, b))
	})
	var out []string
	for _, p := range names[:min(n, len(names))] {
		out = append(out, fmt.Sprintf("%s %.0f", p, t.took[p]))
	}
	return strings.Join(out, ", ")
}

func (t *tally) read(r io.Reader) error {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				t.w.Write(line)
			} else {
				t.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) add(e event) {
	id := e.Package + "\x00" + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Action == "build-output" {
			fmt.Fprint(t.w, e.Output)
			return
		}
		t.output[id] = append(t.output[id], e.Output)
	case "pass", "fail", "skip":
		if e.Action != "pass" && (e.Test != "" || e.Action == "fail") {
			for _, s := range t.output[id] {
				fmt.Fprint(t.w, s)
			}
		}
		delete(t.output, id)
		if e.Test == "" {
			t.took[e.Package] = e.Elapsed
			if e.Action == "fail" {
				fmt.Fprintf(t.w, "FAIL %s\n", e.Package)
			}
			return
		}
		switch e.Action {
		case "pass":
			t.passed++
		case "fail":
			t.failed++
		case "skip":
			t.skipped++
		}
	}
}
