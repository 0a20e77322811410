package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// override replaces the version of the build information. Only the linker sets
// it, for a build from a tree without version control:
//
//	go build -ldflags "-X github.com/lbd-project/lbd/internal/version.override=v1.2.3"
var override string

// String returns the version, such as "v1.2.3", or "devel" with as much of the
// commit as the build knows.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(override, fromBuild(info))
}

// Go returns the version of the Go toolchain that built the binary.
func Go() string { return runtime.Version() }

// Banner returns the line that a program prints for --version.
func Banner(program string) string {
	return fmt.Sprintf("%s %s (%s %s/%s)", program, String(), Go(), runtime.GOOS, runtime.GOARCH)
}

// fromBuild reads the version that go build stamped; info may be nil.
func fromBuild(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	version := "devel"
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			version += "-" + s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		version += "+dirty"
	}
	return version
}
