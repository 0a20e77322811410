package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lbd-project/lbd/"

// layers maps each package to its layer. A package imports only packages of a
// lower layer; a new package has no layer until somebody gives it one.
var layers = map[string]int{
	"internal/version": 0,
	"internal/flow":    0,
	"internal/netns":   0,
	"internal/command": 0,
	"internal/retry":   0,

	"ipvs":               1,
	"healthcheck":        1,
	"internal/sysnet":    1,
	"sched":              1,
	"internal/packet":    1,
	"internal/nfqueue":   1,
	"internal/conntrack": 1,

	"internal/reconcile": 2,
	"internal/config":    2,
	"internal/api":       2,
	"internal/memory":    2,
	"internal/overhead":  2,
	"internal/userspace": 2,

	"internal/daemon": 3,

	"cmd/lbd":     4,
	"cmd/ipvsctl": 4,
}

// testOnly packages help tests. Nothing that ships imports them; they may
// import anything below the commands.
var testOnly = []string{
	"ipvs/ipvstest",
	"internal/netnstest",
	"internal/certtest",
	"internal/checktest",
	"internal/filetest",
	"internal/oracle",
	"internal/archtest",
	"internal/e2e",
	"internal/demo",
	"internal/bench",
	"internal/vm",
	"internal/tier",
}

// doors lists, for each third-party module, the packages that may import it. A
// package listed here covers the packages below it.
var doors = map[string][]string{
	// nftables has its connection in its own options.
	"github.com/mdlayher/netlink":     {"ipvs", "internal/nfqueue", "internal/conntrack", "internal/userspace/ruleset"},
	"github.com/mdlayher/genetlink":   {"ipvs"},
	"github.com/google/gopacket":      {"internal/packet"},
	"github.com/google/nftables":      {"internal/userspace/ruleset"},
	"github.com/cilium/ebpf":          {"internal/userspace/tunnel"},
	"github.com/vishvananda/netlink":  {"internal/sysnet", "internal/netnstest"},
	"github.com/vishvananda/netns":    {"internal/sysnet", "internal/netnstest"},
	"github.com/spf13/pflag":          {"cmd"},
	"github.com/spf13/cobra":          {"cmd"},
	"go.yaml.in/yaml":                 {"internal/config"},
	"github.com/coreos/go-systemd":    {"internal/daemon"},
	"github.com/google/renameio":      {"internal/memory"},
	"github.com/miekg/dns":            {"healthcheck/dnscheck"},
	"github.com/klauspost/compress":   {"internal/vm"},
	"github.com/ulikunitz/xz":         {"internal/vm"},
	"golang.org/x/net":                {"healthcheck/icmpcheck"},
	"golang.org/x/sys":                {"ipvs", "healthcheck", "internal", "cmd"},
	"github.com/santhosh-tekuri":      nil,
	"github.com/google/go-cmp":        {"internal/e2e"},
	"pgregory.net/rapid":              nil,
	"github.com/rogpeppe/go-internal": {"internal/e2e"},
}

type listed struct {
	ImportPath                         string
	Name                               string
	Doc                                string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json", "-e", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages, want at least 5", len(pkgs))
	}
	return pkgs
}

func under(pkg string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return pkg == d || strings.HasPrefix(pkg, d+"/")
	})
}

// layerOf returns the layer of a shipping package; a package below a listed
// one shares its layer, one level deep in it.
func layerOf(pkg string) (layer int, group string, ok bool) {
	for p := pkg; ; p = p[:strings.LastIndex(p, "/")] {
		if l, ok := layers[p]; ok {
			return l, p, true
		}
		if !strings.Contains(p, "/") {
			return 0, "", false
		}
	}
}

func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		if under(p.ImportPath, testOnly) {
			continue
		}
		layer, group, ok := layerOf(p.ImportPath)
		if !ok {
			t.Errorf("package %s has no layer: give it one in arch_test.go", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			imp, own := strings.CutPrefix(imp, module)
			if !own {
				continue
			}
			if under(imp, testOnly) {
				t.Errorf("%s imports %s, which is for tests only", p.ImportPath, imp)
				continue
			}
			l, g, ok := layerOf(imp)
			if !ok || g == group {
				continue
			}
			if l >= layer {
				t.Errorf("%s (layer %d) imports %s (layer %d): imports go strictly down", p.ImportPath, layer, imp, l)
			}
			if p.ImportPath == "cmd/ipvsctl" && g == "internal/daemon" {
				t.Errorf("cmd/ipvsctl imports %s", imp)
			}
		}
	}
}

func TestDoors(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(imp, module) {
				continue
			}
			known := false
			for m, dirs := range doors {
				if imp != m && !strings.HasPrefix(imp, m+"/") {
					continue
				}
				known = true
				if !under(p.ImportPath, dirs) {
					t.Errorf("%s imports %s; only %v may", p.ImportPath, imp, dirs)
				}
			}
			if !known {
				t.Errorf("%s imports %s, which has no door in arch_test.go", p.ImportPath, imp)
			}
		}
	}
}

// TestDocumented asks every package for a doc comment of its own.
func TestDocumented(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("package %s has no doc comment", p.ImportPath)
		}
	}
}
