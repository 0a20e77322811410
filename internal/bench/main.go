package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main runs a benchmark in this process: its context ends with SIGINT and
// SIGTERM, and its status is the process's.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Parse parses the flags of a benchmark, which takes no arguments, and then asks
// check whether it can run with them. What is wrong is told in the name of the
// program, and the exit status of it is returned; 0 where nothing is.
func Parse(fs *flag.FlagSet, args []string, stderr io.Writer, program string, check func() error) int {
	fs.Init(program, flag.ContinueOnError)
	fs.SetOutput(stderr)
	if fs.Parse(args) != nil {
		return 2 // it is said already
	}
	err := check()
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("there is an argument: %q", fs.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 2
	}
	return 0
}

// ErrRange is what a check returns of a number that is too small or too large.
var ErrRange = errors.New("a number is out of range")

// BinFlag adds the flag for the folder of lbd and of the load's programs: by
// default the one of the running program.
func BinFlag(fs *flag.FlagSet, bin *string) {
	fs.StringVar(bin, "bin", Beside(""), "`folder` of lbd, bench-client and bench-server")
}

// Beside returns the path of a file in the folder of the running program.
func Beside(name string) string {
	exe, err := os.Executable()
	if err != nil {
		return name // in the current one, then
	}
	return filepath.Join(filepath.Dir(exe), name)
}
