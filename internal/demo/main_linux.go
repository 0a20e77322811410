// Command demo shows lbd at work: a client, a balancer and three real servers in
// network namespaces, real HTTP traffic, a server that dies and comes back, and
// an lbd that is killed in the middle of a download.
//
//	demo [-engine auto|kernel|userspace] [-live auto|yes|no] [-bin FOLDER]
//
// It prints a table of connections a server while it runs and a summary at the
// end. The exit status is 0 when everything in the summary passed and 1 when
// something did not. Needs root; lbd and ipvsctl are in the folder of the demo
// itself unless -bin names another.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/e2e"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	engine := fs.String("engine", "auto", "`engine` of lbd: auto, kernel or userspace")
	live := fs.String("live", "auto", "draw the table in place: auto (on a terminal), yes or no")
	bin := fs.String("bin", "", "`folder` of lbd and ipvsctl; the demo's own unless set")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *bin == "" {
		exe, err := os.Executable()
		if err != nil {
			fmt.Fprintln(stderr, "demo:", err)
			return 1
		}
		*bin = filepath.Dir(exe)
	}
	dir, err := os.MkdirTemp("", "lbd-demo-")
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	d := &demo{
		view:  &view{out: stdout, live: *live == "yes" || *live == "auto" && terminal(stdout)},
		dir:   dir,
		ask:   *engine,
		began: time.Now(),
	}
	d.sum.broken = e2e.WithHost(func(h *e2e.Host) error { return d.run(h, *bin) })
	if !d.sum.print(stdout) {
		return 1
	}
	return 0
}

// terminal says whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}
