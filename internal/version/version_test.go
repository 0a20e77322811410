package version

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestFromBuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting {
		return debug.BuildSetting{Key: key, Value: value}
	}
	tests := []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"no information", nil, "devel"},
		{"empty", &debug.BuildInfo{}, "devel"},
		{"tag", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"tree without version control", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
		{
			"commit",
			&debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "0123456789abcdef0123")}},
			"devel-0123456789ab",
		},
		{
			"changed tree",
			&debug.BuildInfo{Settings: []debug.BuildSetting{
				setting("vcs.modified", "true"), setting("vcs.revision", "0123"),
			}},
			"devel-0123+dirty",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fromBuild(tt.info); got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
}

// The override's path is written in build scripts, where no compiler looks.
func TestOverrideIsLinked(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "version.test")
	const flag = "-X github.com/lbd-project/lbd/internal/version.override=v9.8.7"
	if out, err := exec.Command("go", "test", "-c", "-ldflags", flag, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command(bin, "-test.v", "-test.run", "^TestBanner$").CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	if want := "lbd v9.8.7 (go"; !strings.Contains(string(out), want) {
		t.Errorf("want %q in the output, got:\n%s", want, out)
	}
}

func TestBanner(t *testing.T) {
	got := Banner("lbd")
	t.Log(got)
	want := "lbd " + String() + " (" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
