package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/overhead"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// scripts is the folder of the scenarios of every engine. Those of one engine are
// in a folder of its name in there.
const scripts = "../../testdata/netns"

// The bounds of retry.
const (
	retryFor   = time.Minute
	retryPause = 50 * time.Millisecond
)

// TestKernelE2E runs every scenario on the kernel's IPVS. A scenario is a testscript (see the package
// documentation of github.com/rogpeppe/go-internal/testscript) with the commands
// of the table below; each starts with "lab".
//
//	lab masq|route|tunnel [N]          build the topology with N servers (3)
//	vip ADDRESS...                     give the balancer, and where needed the servers, VIPs
//	vip -servers ADDRESS...            give them to the servers only
//	sysctl NODE KEY [VALUE]            read or write a sysctl
//	addrs NODE DEVICE                  print the addresses of a device
//	run NODE PROGRAM ARGUMENT...       run a program: ipvsadm, nft
//	queue NODE NUMBER take|give        hold an NFQUEUE as another program would, or give it back
//	config FILE                        make FILE the configuration; $WORK and $NETNS in it
//	                                   (the balancer's namespace) are expanded
//	lbd start [NODE]                   start lbd, in the balancer's or another namespace, wait until it is ready
//	lbd kill | stop                    end it with SIGKILL, or SIGTERM and status 0
//	lbd hup                            send SIGHUP, wait for the end of the reload
//	lbd run ARGUMENT...                run lbd to its end
//	lbd log REGEXP                     wait until lbd has written a line
//	clock alone                        [clock] only: wait until no other scenario runs, and let none
//	                                   begin; before the first jump, while lbd does not run
//	clock JUMP                         let the wall clock jump; while lbd runs [clock] only
//	reboot AGE                         leave of a dead lbd what a reboot does, its state file AGE old
//	ipvsctl ARGUMENT...                run ipvsctl on lbd's socket
//	table [FILE]                       print the engine's table, or compare it
//	table -sorted FILE                 compare it without the order of real servers
//	counts [FILE]                      the same with active and inactive connections
//	active                             print the sum of active connections: "active 25"
//	steady FILE | steady -stop         see that the table equals FILE all the time in between
//	spread N TARGET                    N requests in a row; prints "s1=3 s2=2 s3=1"
//	ask N ADDRESS:PORT                 N UDP packets from one socket; prints their spread
//	from PORT N ADDRESS:PORT           N requests in a row from one source port; prints their spread,
//	                                   and how many had to send the first packet again: "s1=2 s2=1 late=0"
//	flow NAME open ADDRESS:PORT        open a UDP socket
//	flow NAME ask                      send a packet from it; prints who answers, fails after a while,
//	                                   with "!" or in a retry a second
//	hold NAME N URL                    open N connections that stay; prints their spread
//	release NAME                       end them
//	stream NAME start TARGET           requests in the background until the script ends
//	stream NAME reset                  forget what was counted
//	stream NAME good N                 wait for N more good requests; none may fail
//	stream NAME avoids SERVER          none of the good requests counted may be SERVER's
//	crowd NAME start N URL             keep N connections open, of which the oldest gives way to
//	                                   a new one ten times a second; waits until they are open
//	crowd NAME spread                  print their spread now; fails unless there are N
//	crowd NAME reset                   forget which failed
//	crowd NAME good                    fails if one could not be opened, or did not last
//	download NAME URL BYTES            download the first half
//	finish NAME                        download the rest and check every byte
//	webhook listen ADDRESS:PORT        take notifications, on the client
//	webhook got                        print those that came, a line an event: kind, state, service, server
//	speak NAME PROTOCOL HOW            let a server's program for checks speak dns, grpc, https, smtp or udp
//	                                   and be right, wrong or silent from now on
//	server NAME refuse|open            refuse new connections to HTTP, or accept them
//	server NAME sick|well              the same for the health port alone
//	server NAME unplug|plug            take it off the network, or back
//	server NAME kill|restart           end its program with all connections, or start it again
//	server NAME say WORD...            let an agent on port 9707 say that from now on
//	server NAME silent                 end the agent
//	server NAME limit N                let its program end whenever it gets more than N of the last
//	                                   10 connections that came to any server's port 80
//	server NAME fell                   fails unless it did so since
//	server NAME certificate DURATION   serve HTTPS with a new certificate that is good for so long
//	sees REGEXP COMMAND...             run a command of this table whose output must match
//	retry [-for TIME] COMMAND...       repeat a command of this table until it succeeds
//
// TARGET is an http URL or, for UDP, address:port. A "!" before a command wants
// it to fail; what the error says is then standard error. Conditions before a
// command are [kernel] and [userspace], by the engine, [ipvs] and [ipip] where
// the kernel has IPVS, or devices of that kind, and [clock] where the wall clock may
// be set, which is in the VM. A configuration that names no engine gets that of the
// run; on the kernel it is left to engine: auto.
func TestKernelE2E(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	runScenarios(t, KernelEngine, nil)
}

// TestKernelE2EUserspace runs the scenarios on the userspace engine, with the
// kernel's own queue expression, beside an IPVS that nobody uses. It leaves out
// those that say "# no third run: REASON": what they show is the same on either
// kernel, and TestNetnsE2E runs them on this engine, TestKernelE2E on that kernel.
func TestKernelE2EUserspace(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue", "ipvs")
	runScenarios(t, UserspaceEngine, func(file string) bool { return thirdRun(t, file) })
}

// TestNetnsE2E runs every scenario on the userspace engine and this kernel.
func TestNetnsE2E(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	runScenarios(t, UserspaceEngine, nil)
}

// runScenarios runs the scenarios of every engine and those of this one, or of
// them those that wanted selects.
func runScenarios(t *testing.T, e Engine, wanted func(file string) bool) {
	t.Helper()
	lbd, ipvsctl, err := Programs(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	both, own := scenarios(t, scripts), scenarios(t, filepath.Join(scripts, string(e)))
	t.Logf("engine %s: %d scenarios of every engine, %d of its own", e, len(both), len(own))
	files := append(both, own...)
	if wanted != nil {
		all := len(files)
		files = slices.DeleteFunc(files, func(f string) bool { return !wanted(f) })
		t.Logf("%d of them run here, %d say that they need no third run", len(files), all-len(files))
	}
	runScripts(t, files, &script{engine: e, lbd: lbd, ipvsctl: ipvsctl})
}

// noThirdRun finds the reason why a scenario needs no run of TestKernelE2EUserspace.
var noThirdRun = regexp.MustCompile(`(?m)^# no third run: +(\S.*)$`)

// thirdRun says whether a scenario runs in TestKernelE2EUserspace.
func thirdRun(t *testing.T, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := noThirdRun.FindSubmatch(b)
	if m != nil {
		t.Logf("%s has no third run: %s", filepath.Base(file), m[1])
	}
	return m == nil
}

// scenarios returns the files of a folder.
func scenarios(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario in %s: %v", dir, err)
	}
	return files
}

// TestNetnsScript sees that the commands that need no IPVS do what they say,
// and fail when they should.
func TestNetnsScript(t *testing.T) {
	netnstest.Require(t, "netns")
	runScripts(t, scenarios(t, "testdata"), &script{engine: KernelEngine})
}

// runScripts runs scripts that each start from a copy of s.
func runScripts(t *testing.T, files []string, s *script) {
	t.Helper()
	cmds := make(map[string]func(*testscript.TestScript, bool, []string))
	for name := range commands() {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value(scriptKey{}).(*script)
			s.tb.ts = ts
			s.doubts = neg
			out, err := s.call(append([]string{name}, args...))
			fmt.Fprint(ts.Stdout(), out)
			switch {
			case neg && err == nil:
				ts.Fatalf("%s succeeded", name)
			case neg:
				fmt.Fprintln(ts.Stderr(), err)
			case err != nil:
				ts.Fatalf("%v", err)
			}
		}
	}
	testscript.Run(t, testscript.Params{
		Files:              files,
		RequireUniqueNames: true,
		Condition:          s.condition,
		Cmds:               cmds,
		Setup: func(env *testscript.Env) error {
			tb := &scriptTB{env: env}
			wallClock.RLock()
			s := s.start(tb, env.WorkDir)
			env.Values[scriptKey{}] = s
			env.Defer(s.close)
			return nil
		},
	})
}

type scriptKey struct{}

// scriptTB lets a running script be a netnstest.TB.
type scriptTB struct {
	env *testscript.Env
	ts  *testscript.TestScript
}

func (tb *scriptTB) Helper()                           {}
func (tb *scriptTB) Cleanup(f func())                  { tb.env.Defer(f) }
func (tb *scriptTB) Logf(format string, args ...any)   { tb.ts.Logf(format, args...) }
func (tb *scriptTB) Fatalf(format string, args ...any) { tb.ts.Fatalf(format, args...) }

// script is the state of one scenario.
type script struct {
	tb           *scriptTB
	dir          string
	engine       Engine
	lbd, ipvsctl string

	lab       *Lab
	daemon    *LBD
	held      map[string][]*Held
	streams   map[string]*Stream
	crowds    map[string]*Crowd
	downloads map[string]*Download
	flows     map[string]*Flow
	steady    *watch
	queues    map[string]*nfqueue.Queue
	receiver  *receiver
	speakers  map[string]*speaker // by server and protocol
	// doubts says that the command may well fail: it is negated or retried.
	doubts bool
	// alone says that no other scenario runs, so that the wall clock is this one's;
	// jumped is how far it is from where it was.
	alone  bool
	jumped time.Duration
}

// condition says whether a condition of scripts holds.
func (s *script) condition(name string) (bool, error) {
	switch name {
	case string(KernelEngine), string(UserspaceEngine):
		return name == string(s.engine), nil
	case "ipvs", "ipip":
		return netnstest.Have(name) == nil, nil
	case "clock":
		return ownClock(), nil
	case "inactive": // this kernel's IPVS weighs connections by the older formula
		o, err := overhead.Probe(context.Background())
		if errors.Is(err, ipvs.ErrNotAvailable) {
			err = nil
		}
		return o == sched.OverheadInactive, err
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// start returns a copy for a script that runs in dir.
func (s *script) start(tb *scriptTB, dir string) *script {
	return &script{
		tb: tb, dir: dir, engine: s.engine, lbd: s.lbd, ipvsctl: s.ipvsctl,
		held:      make(map[string][]*Held),
		streams:   make(map[string]*Stream),
		crowds:    make(map[string]*Crowd),
		downloads: make(map[string]*Download),
		flows:     make(map[string]*Flow),
		queues:    make(map[string]*nfqueue.Queue),
		speakers:  make(map[string]*speaker),
	}
}

// close ends what the script left running; the rest ends with the Lab.
func (s *script) close() {
	if s.jumped != 0 {
		if err := jump(-s.jumped); err != nil {
			s.tb.Logf("the clock stays wrong: %v", err)
		}
	}
	if s.alone {
		defer wallClock.Unlock()
	} else {
		defer wallClock.RUnlock()
	}
	if s.steady != nil {
		s.steady.stop() // nobody asks for its result
	}
	for _, q := range s.queues {
		q.Close()
	}
	for _, st := range s.streams {
		st.Stop()
	}
	for _, c := range s.crowds {
		c.Stop()
	}
	for _, d := range s.downloads {
		d.Abandon()
	}
	for _, f := range s.flows {
		f.Close()
	}
	for _, list := range s.held {
		for _, h := range list {
			h.Close()
		}
	}
}

// command is a command of scenarios: what it prints, and why it failed.
type command func(s *script, args []string) (string, error)

func commands() map[string]command {
	return map[string]command{
		"lab": cmdLab, "vip": cmdVIP, "sysctl": cmdSysctl, "addrs": cmdAddrs, "run": cmdRun,
		"config": cmdConfig, "clock": cmdClock, "reboot": cmdReboot, "lbd": cmdLBD, "ipvsctl": cmdIpvsctl,
		"table": cmdTable, "counts": cmdCounts, "active": cmdActive, "steady": cmdSteady, "queue": cmdQueue,
		"spread": cmdSpread, "ask": cmdAsk, "from": cmdFrom, "flow": cmdFlow, "hold": cmdHold, "release": cmdRelease, "stream": cmdStream, "crowd": cmdCrowd,
		"download": cmdDownload, "finish": cmdFinish, "server": cmdServer,
		"webhook": cmdWebhook, "speak": cmdSpeak,
		"sees": cmdSees, "retry": cmdRetry,
	}
}

func (s *script) call(args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("no command")
	}
	cmd, ok := commands()[args[0]]
	if !ok {
		return "", fmt.Errorf("unknown command %q", args[0])
	}
	if s.lab == nil && args[0] != "lab" {
		return "", errors.New("a script starts with lab")
	}
	return cmd(s, args[1:])
}

func cmdSees(s *script, args []string) (string, error) {
	if len(args) < 2 {
		return "", usage("sees REGEXP COMMAND...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return "", err
	}
	out, err := s.call(args[1:])
	if err == nil && !re.MatchString(out) {
		err = fmt.Errorf("no %q in the output of %s:\n%s\n%s", args[0], args[1], out, s.daemon.Log())
	}
	return out, err
}

func cmdRetry(s *script, args []string) (string, error) {
	limit := retryFor
	if len(args) > 2 && args[0] == "-for" {
		var err error
		if limit, err = time.ParseDuration(args[1]); err != nil {
			return "", err
		}
		args = args[2:]
	}
	s.doubts = true
	deadline := time.Now().Add(limit)
	for {
		out, err := s.call(args)
		if err == nil || time.Now().After(deadline) {
			return out, err
		}
		time.Sleep(retryPause)
	}
}

func usage(form string) error { return fmt.Errorf("usage: %s", form) }

// path makes a file name of a script absolute.
func (s *script) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.dir, name)
}

func cmdLab(s *script, args []string) (string, error) {
	if len(args) == 0 || len(args) > 2 || s.lab != nil {
		return "", usage("lab masq|route|tunnel [N], once")
	}
	mode, n := Mode(args[0]), 3
	if !slices.Contains([]Mode{Masq, Route, Tunnel}, mode) {
		return "", fmt.Errorf("unknown mode %q", mode)
	}
	if len(args) == 2 {
		if _, err := fmt.Sscan(args[1], &n); err != nil {
			return "", err
		}
	}
	s.lab = NewLab(s.tb, mode, n)
	s.daemon = NewLBD(s.tb, s.lab.Balancer, s.lbd, s.path("active.yaml"), s.dir)
	s.daemon.Engine = s.engine
	return "", nil
}

func cmdVIP(s *script, args []string) (string, error) {
	add := s.lab.AddVIP
	if len(args) > 0 && args[0] == "-servers" {
		add, args = s.lab.ServeVIP, args[1:]
	}
	for _, a := range args {
		add(a)
	}
	return "", nil
}

// node returns a namespace by name: client, balancer, s1, s2, ...
func (s *script) node(name string) *netnstest.NS {
	switch name {
	case "client":
		return s.lab.Client
	case "balancer":
		return s.lab.Balancer
	default:
		return s.lab.Server(name).NS
	}
}

func cmdSysctl(s *script, args []string) (string, error) {
	switch len(args) {
	case 2:
		return s.node(args[0]).Sysctl(args[1]) + "\n", nil
	case 3:
		s.node(args[0]).SetSysctl(args[1], args[2])
		return "", nil
	default:
		return "", usage("sysctl NODE KEY [VALUE]")
	}
}

func cmdAddrs(s *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("addrs NODE DEVICE")
	}
	return strings.Join(s.node(args[0]).Addrs(args[1]), "\n") + "\n", nil
}

func cmdRun(s *script, args []string) (string, error) {
	if len(args) < 2 {
		return "", usage("run NODE PROGRAM ARGUMENT...")
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = s.dir
	return runBounded(s.node(args[0]), cmd)
}

// runBounded runs a program that may not take long.
func runBounded(n *netnstest.NS, cmd *exec.Cmd) (string, error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := n.Start(cmd); err != nil {
		return "", err
	}
	timer := time.AfterFunc(startTimeout, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, &errOut)
	}
	return out.String(), nil
}

// conditions are what may stand before a command.
var conditions = regexp.MustCompile(`^(\[!?(kernel|userspace|ipvs|ipip|inactive|clock)\] )+`)

// TestScriptsParse sees on any machine that every scenario uses known commands.
func TestScriptsParse(t *testing.T) {
	files := scenarios(t, scripts)
	for _, e := range []Engine{KernelEngine, UserspaceEngine} {
		files = append(files, scenarios(t, filepath.Join(scripts, string(e)))...)
	}
	known := commands()
	builtin := []string{"stdout", "stderr", "cmp", "cp", "exists", "grep", "rm", "env", "skip"}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(b), "\n-- ")
		words, alone := 0, false
		for i, line := range strings.Split(head, "\n") {
			line = conditions.ReplaceAllString(line, "")
			w := strings.Fields(strings.TrimPrefix(line, "! "))
			if len(w) > 3 && w[0] == "retry" && w[1] == "-for" {
				w = w[3:]
			} else if len(w) > 1 && w[0] == "retry" {
				w = w[1:]
			}
			if len(w) == 0 || strings.HasPrefix(w[0], "#") {
				continue
			}
			words++
			if alone = alone || line == "clock alone"; w[0] == "clock" && !alone {
				t.Errorf("%s:%d: the clock jumps before [clock] clock alone", f, i+1)
			}
			if _, ok := known[w[0]]; !ok && !slices.Contains(builtin, w[0]) {
				t.Errorf("%s:%d: unknown command %q", f, i+1, w[0])
			}
		}
		if words < 3 {
			t.Errorf("%s does nothing", f)
		}
		if strings.Contains(head, "third run") && !noThirdRun.MatchString(head) {
			t.Errorf("%s names no reason for no third run", f)
		}
	}
}
