package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/vm"
)

// testTools are what kernel tests may call.
var testTools = []string{"busybox", "conntrack", "ip", "ipvsadm", "nft"}

// requireTiers turns the tests' skips into failures (package netnstest).
const requireTiers = "LBD_TEST_REQUIRE=ipvs,netns,nfqueue"

// testModules are loaded before each package's tests.
var testModules = []string{
	// The kernel can lock itself up when it loads these on demand: adding a
	// service holds __ip_vs_mutex while modprobe waits, in register_pernet_subsys,
	// for the end of another network namespace, whose __ip_vs_cleanup_batch waits
	// for that mutex. Tests end namespaces all the time. Of the schedulers only
	// these have such an init; seen on 6.1.192.
	"ip_vs_lblc", "ip_vs_lblcr",
	// The kernel begins a batch of nftables rules anew after each module that it
	// loads for it, which takes half a minute under emulation.
	"nf_conntrack_netlink", "nfnetlink_cttimeout", "nfnetlink_queue", "nft_chain_nat", "nft_ct", "nft_nat",
	"nft_numgen", "nft_queue", "nft_reject_ipv4", "nft_reject_ipv6",
}

// testFlags are the flags of vmrun test.
type testFlags struct {
	place         *placeFlags
	run, bench    string
	benchtime     string
	count         int
	timeout       time.Duration
	race, verbose bool
	short         bool
	files, tools  words
	packages      []string
	// beside are packages for a guest of their own.
	beside  words
	streams bool
}

// words is a flag that may be given more than once.
type words []string

func (w *words) String() string { return strings.Join(*w, ",") }

func (w *words) Set(s string) error {
	*w = append(*w, s)
	return nil
}

func (a *app) testFlags(args []string) (*testFlags, error) {
	fs := flag.NewFlagSet("vmrun test", flag.ContinueOnError)
	fs.SetOutput(a.stderr)
	f := &testFlags{place: a.placeFlags(fs)}
	fs.StringVar(&f.run, "run", "", "tests to run, a `regexp`; ^TestKernel, or none with -bench")
	fs.StringVar(&f.bench, "bench", "", "benchmarks to run, a `regexp`")
	fs.StringVar(&f.benchtime, "benchtime", "", "as for go test")
	fs.IntVar(&f.count, "count", 1, "how often to run each test")
	fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "limit of each package")
	fs.BoolVar(&f.race, "race", false, "with the race detector")
	fs.BoolVar(&f.short, "short", false, "as for go test")
	fs.BoolVar(&f.verbose, "v", false, "show all output as it comes")
	fs.Var(&f.files, "file", "`host[:guest]` file or folder to ship beside the sources; may be repeated")
	fs.Var(&f.beside, "beside", "`package` to test in a second guest, at the same time as the others; may be repeated")
	fs.Var(&f.tools, "tool", "`name` of a further program on this host to ship; may be repeated")
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return nil, err
		}
		return nil, usageError(err.Error())
	}
	if f.packages = fs.Args(); len(f.packages) == 0 {
		return nil, usageError("test needs a package")
	}
	if len(f.beside) > 0 && (f.verbose || f.bench != "") {
		return nil, usageError("-beside goes with neither -v nor -bench")
	}
	if f.timeout <= 0 {
		return nil, usageError("-timeout must be above 0")
	}
	if f.run == "" && f.bench == "" {
		f.run = "^TestKernel"
	} else if f.run == "" {
		f.run = "^$"
	}
	f.streams = f.verbose || f.bench != ""
	return f, nil
}

// selection tells which functions shall run.
func (f *testFlags) selection() (selection, error) {
	var s selection
	for _, x := range []struct {
		text string
		to   **regexp.Regexp
	}{{f.run, &s.tests}, {f.bench, &s.benchmarks}} {
		// What follows a slash chooses among subtests.
		name, _, _ := strings.Cut(x.text, "/")
		if name == "" {
			continue
		}
		r, err := regexp.Compile(name)
		if err != nil {
			return s, usageError(err.Error())
		}
		*x.to = r
	}
	return s, nil
}

func (f *testFlags) binaryArgs() []string {
	args := []string{"-test.v=test2json", "-test.run=" + f.run, "-test.count=" + strconv.Itoa(f.count)}
	if f.bench != "" {
		args = append(args, "-test.bench="+f.bench)
	}
	if f.benchtime != "" {
		args = append(args, "-test.benchtime="+f.benchtime)
	}
	if f.short {
		args = append(args, "-test.short")
	}
	return args
}

// test is the command vmrun test.
func (a *app) test(ctx context.Context, args []string) (int, error) {
	f, err := a.testFlags(args)
	if err != nil {
		return 0, err
	}
	keep, err := f.selection()
	if err != nil {
		return 0, err
	}
	packages, err := listPackages(ctx, append(slices.Clone(f.packages), f.beside...), keep)
	if err != nil {
		return 0, err
	}
	second, err := f.besides(ctx, keep)
	if err != nil {
		return 0, err
	}
	p, err := a.open(ctx, f.place)
	if err != nil {
		return 0, err
	}
	groups := [][]pkg{packages}
	if _, ok := p.(guest); ok {
		groups = separate(packages, second)
	}
	dir, err := os.MkdirTemp("", "lbd-vm-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	works := make([]work, len(groups))
	for i, g := range groups {
		if works[i], err = f.work(ctx, g, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return 0, err
		}
	}
	return a.runAll(ctx, p, f, groups, works)
}

// besides returns the packages of -beside.
func (f *testFlags) besides(ctx context.Context, keep selection) ([]pkg, error) {
	if len(f.beside) == 0 {
		return nil, nil
	}
	return listPackages(ctx, f.beside, keep)
}

// separate splits packages in those of second and the rest, and leaves out a
// part that is empty.
func separate(packages, second []pkg) [][]pkg {
	var groups [2][]pkg
	for _, p := range packages {
		i := 0
		if slices.ContainsFunc(second, func(q pkg) bool { return q.ImportPath == p.ImportPath }) {
			i = 1
		}
		groups[i] = append(groups[i], p)
	}
	return slices.DeleteFunc(groups[:], func(g []pkg) bool { return len(g) == 0 })
}

// runAll runs each group of packages in a guest of its own, all at once, and
// returns the exit status of all together.
func (a *app) runAll(ctx context.Context, p place, f *testFlags, groups [][]pkg, works []work) (int, error) {
	out := &lines{w: a.stdout}
	sinks := make([]*testSink, len(groups))
	reports, errs := make([]*vm.Report, len(groups)), make([]error, len(groups))
	begin := time.Now()
	var all sync.WaitGroup
	for i, w := range works {
		sinks[i] = &testSink{out: out, packages: groups[i], streams: f.streams}
		w.sink = sinks[i]
		all.Go(func() {
			if reports[i], errs[i] = p.run(ctx, w); errs[i] != nil {
				sinks[i].abort()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	fmt.Fprintf(a.stdout, "vm: took %.0f s, builds not counted\n", time.Since(begin).Seconds())
	return total(a.stdout, sinks, reports), nil
}

// work builds the test binaries and collects what they need.
func (f *testFlags) work(ctx context.Context, packages []pkg, dir string) (work, error) {
	w := work{image: new(vm.Image), env: programEnv(os.Environ(), requireTiers), retry: vm.RetryAll, preload: testModules}
	root := packages[0].Module.Dir
	for i, p := range packages {
		name := strings.ReplaceAll(p.rel(), "/", "-")
		if name == "" {
			name = "root"
		}
		t := task{
			file: filepath.Join(dir, strconv.Itoa(i), name+".test"), dir: p.Dir,
			guestFile: path.Join("/app", name+".test"), guestDir: sourceDir(p.rel()),
			args: f.binaryArgs(), timeout: f.timeout,
		}
		if err := buildTest(ctx, p, t.file, f.race); err != nil {
			return w, err
		}
		if err := w.image.Add(t.file, t.guestFile); err != nil {
			return w, err
		}
		if err := addIfThere(w.image, filepath.Join(p.Dir, "testdata"), path.Join(t.guestDir, "testdata")); err != nil {
			return w, err
		}
		w.tasks = append(w.tasks, t)
	}
	if err := addIfThere(w.image, filepath.Join(root, "testdata"), sourceDir("testdata")); err != nil {
		return w, err
	}
	for _, file := range f.files {
		host, guest, ok := strings.Cut(file, ":")
		if !ok {
			guest = inSources(root, host)
		}
		if err := w.image.Add(host, guest); err != nil {
			return w, err
		}
	}
	for _, tool := range append(testTools, f.tools...) {
		if _, err := w.image.AddTool(tool); err != nil {
			return w, err
		}
	}
	return w, nil
}

// sourceDir returns the guest's folder that stands for one of the module.
func sourceDir(rel string) string { return path.Join("/src", rel) }

// inSources returns the guest's path of a file of the module, or of one
// elsewhere by its base name.
func inSources(root, host string) string {
	if abs, err := filepath.Abs(host); err == nil {
		if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
			return sourceDir(filepath.ToSlash(rel))
		}
	}
	return sourceDir(filepath.Base(host))
}

func addIfThere(m *vm.Image, host, guest string) error {
	if _, err := os.Stat(host); os.IsNotExist(err) {
		return nil
	}
	return m.Add(host, guest)
}
