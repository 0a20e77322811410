package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/e2e"
)

// row is what the view shows of one real server.
type row struct {
	Name, Address    string
	Weight           int
	Active, Inactive int
	// Answers are the good answers since the demo began.
	Answers int
}

// frame is what the view shows at one moment.
type frame struct {
	At           time.Duration
	Rows         []row
	Good, Failed int
	// Download is how far a download is, in percent; -1 for none.
	Download int
	// LBD says whether lbd runs.
	LBD bool
}

// newFrame joins the kernel's table with what the traffic saw.
func newFrame(at time.Duration, t e2e.Table, servers []*e2e.Server, r e2e.StreamResult) frame {
	f := frame{At: at, Good: r.Good, Failed: r.Failed, Download: -1}
	for _, srv := range servers {
		w := row{Name: srv.Name, Weight: -1, Answers: r.Spread[srv.Name]}
		for _, svc := range t {
			for _, d := range svc.Servers {
				if d.Address.Addr() == srv.V4 {
					w.Address = d.Address.String()
					w.Weight, w.Active, w.Inactive = d.Weight, d.Active, d.Inactive
				}
			}
		}
		f.Rows = append(f.Rows, w)
	}
	return f
}

// view prints frames and headings: on a terminal the frame stays at the bottom
// and is drawn anew, elsewhere each second's frame is a line.
type view struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	drawn int // lines of the frame on the terminal
	last  frame
	line  time.Duration // when a plain line was last printed
}

// say prints a line above the frame.
func (v *view) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprintf(v.out, format+"\n", args...)
	if v.live && v.last.Rows != nil {
		v.draw()
	}
}

// show shows a frame.
func (v *view) show(f frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = f
	if v.live {
		v.erase()
		v.draw()
		return
	}
	if v.line == 0 || f.At-v.line >= time.Second {
		v.line = f.At
		fmt.Fprintln(v.out, f.line())
	}
}

// close leaves the last frame on the terminal.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drawn = 0
	v.last = frame{}
}

func (v *view) erase() {
	if v.drawn > 0 {
		// Up to the frame's first line, and clear to the end of the screen.
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

func (v *view) draw() {
	text := v.last.table()
	v.drawn = strings.Count(text, "\n")
	io.WriteString(v.out, text)
}

// barWidth bounds the bar of active connections.
const barWidth = 30

func (f frame) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %-4s %-14s %6s %7s %9s %8s\n", "", "REAL SERVER", "WEIGHT", "ACTIVE", "INACTIVE", "ANSWERS")
	for _, r := range f.Rows {
		weight := "-"
		if r.Weight >= 0 {
			weight = fmt.Sprint(r.Weight)
		}
		fmt.Fprintf(&b, "  %-4s %-14s %6s %7d %9d %8d  %s\n", r.Name, r.Address, weight, r.Active, r.Inactive,
			r.Answers, strings.Repeat("#", min(r.Active, barWidth)))
	}
	fmt.Fprintf(&b, "  %4.0fs  answers %d, failed %d%s\n", f.At.Seconds(), f.Good, f.Failed, f.rest())
	return b.String()
}

// line is the frame in one line.
func (f frame) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %4.0fs", f.At.Seconds())
	for _, r := range f.Rows {
		weight := "-"
		if r.Weight >= 0 {
			weight = fmt.Sprint(r.Weight)
		}
		fmt.Fprintf(&b, " | %s weight %s active %2d", r.Name, weight, r.Active)
	}
	fmt.Fprintf(&b, " | answers %d failed %d%s", f.Good, f.Failed, f.rest())
	return b.String()
}

func (f frame) rest() string {
	s := ""
	if f.Download >= 0 {
		s += fmt.Sprintf(", download %d%%", f.Download)
	}
	if !f.LBD {
		s += ", lbd is dead"
	}
	return s
}
