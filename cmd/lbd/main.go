package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon"
	"github.com/lbd-project/lbd/internal/version"
)

// Exit statuses, documented in lbd(8).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // usage or configuration error
)

const usage = `usage: lbd [--config FILE] [--run-dir DIR] [--log-level LEVEL]
       lbd --check FILE
       lbd --clear [--run-dir DIR]
       lbd --version

Balances connections over real servers through the kernel's IPVS, or by itself
where the kernel has none.

  -c, --config FILE      configuration (default /etc/lbd/lbd.yaml)
      --run-dir DIR      what lbd remembers of the table (default /run/lbd)
      --check FILE       check a configuration, print its errors and exit
      --clear            remove what a dead lbd left: the table, addresses, rules
                         and sysctls
      --log-level LEVEL  debug, info, warn or error (default info)
      --version          print the version and exit
  -h, --help             print this help and exit

Exit status: 0 done, 1 the operation failed, 2 usage or configuration error.
Example: lbd --check /etc/lbd/lbd.yaml && systemctl reload lbd
`

// flags is the parsed command line.
type flags struct {
	config, runDir, check string
	clear, version, help  bool
	level                 slog.Level
}

func main() {
	// First of all: the default action of SIGHUP is to die.
	hangup := hangups()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, hangup))
}

// run is the program without its process: it returns the exit status. Only the
// daemon listens to hangup.
func run(args []string, stdout, stderr io.Writer, hangup <-chan os.Signal) int {
	f, err := parse(args)
	if err != nil || f.help || f.version || f.clear || f.check != "" {
		signal.Reset(syscall.SIGHUP)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "lbd: %v\nlbd: see lbd --help\n", err)
		return exitUsage
	case f.help:
		fmt.Fprint(stdout, usage)
		return exitDone
	case f.version:
		fmt.Fprintln(stdout, version.Banner("lbd"))
		return exitDone
	case f.check != "":
		return check(f.check, stdout, stderr)
	}

	// Whoever reads the log may end: that must not stop the checks.
	signal.Ignore(syscall.SIGPIPE)
	log, out := openLog(stderr, f.level, os.Getenv("JOURNAL_STREAM") != "")
	defer out.Close()
	ctx, stop := untilSignal()
	defer stop()
	if f.clear {
		err = daemon.Clear(ctx, f.runDir, log)
	} else {
		err = daemon.Run(ctx, daemon.Options{ConfigFile: f.config, RunDir: f.runDir, Logger: log, Hangup: hangup})
	}
	return exitStatus(err, out)
}

// define defines the options.
func (f *flags) define() *pflag.FlagSet {
	fs := pflag.NewFlagSet("lbd", pflag.ContinueOnError)
	fs.Usage = func() {}
	fs.SetOutput(io.Discard)
	fs.StringVarP(&f.config, "config", "c", daemon.DefaultConfigFile, "")
	fs.StringVar(&f.runDir, "run-dir", daemon.DefaultRunDir, "")
	fs.StringVar(&f.check, "check", "", "")
	fs.BoolVar(&f.clear, "clear", false, "")
	fs.TextVar(&f.level, "log-level", slog.LevelInfo, "")
	fs.BoolVar(&f.version, "version", false, "")
	fs.BoolVarP(&f.help, "help", "h", false, "")
	return fs
}

func parse(args []string) (flags, error) {
	var f flags
	fs := f.define()
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	switch {
	case fs.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case fs.Changed("check") && f.check == "":
		return f, errors.New("--check needs a file")
	case f.clear && f.check != "":
		return f, errors.New("--check and --clear exclude each other")
	case f.clear && fs.Changed("config"):
		return f, errors.New("--clear goes by what lbd remembers in --run-dir and takes no --config")
	}
	return f, nil
}

// check validates a file and prints every error with its place.
func check(file string, stdout, stderr io.Writer) int {
	data, err := read(file)
	if err != nil {
		fmt.Fprintf(stderr, "lbd: %v\n", err)
		return exitUsage
	}
	c, err := config.Parse(file, data)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(stderr, w)
	}
	// With engine: auto it depends on the host, which --check does not look at.
	for _, e := range slices.Sorted(maps.Keys(c.Refused)) {
		for _, line := range c.Refused[e].Lines() {
			fmt.Fprintf(stderr, "%s (so not where engine: auto finds the %s engine)\n", line, e)
		}
	}
	fmt.Fprintf(stdout, "%s: ok\n", file)
	return exitDone
}

// read reads a file, or whatever a shell passes as one.
func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return config.ReadAll(f)
}

// exitStatus prints why lbd failed.
func exitStatus(err error, stderr io.Writer) int {
	var bad *daemon.ConfigError
	switch {
	case err == nil:
		return exitDone
	case !errors.As(err, &bad):
		fmt.Fprintf(stderr, "lbd: %v\n", err)
		return exitFailed
	case bad.Err != nil:
		fmt.Fprintf(stderr, "lbd: %v\n", bad)
	default: // each line has its own place
		fmt.Fprintln(stderr, bad)
	}
	return exitUsage
}

// openLog returns a logger that never waits long for the reader of w, and what it
// writes to, which must be closed in the end.
func openLog(w io.Writer, level slog.Level, journal bool) (*slog.Logger, *logWriter) {
	out := newLogWriter(w, func(w io.Writer, lines int) {
		newLogger(w, slog.LevelWarn, journal).Warn(fmt.Sprintf("%d log lines were lost", lines))
	})
	return newLogger(out, level, journal), out
}

// newLogger logs as text. The journal has its own timestamps.
func newLogger(w io.Writer, level slog.Level, journal bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if journal {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// untilSignal returns a context that the first SIGTERM or SIGINT ends. The
// second one kills, as it would any program.
func untilSignal() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// hangups returns a channel that gets a token for SIGHUP.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}
