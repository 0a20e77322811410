package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExposed has a program in a directory, and everything around it that lets
// others change what runs.
func TestExposed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const nobody = 65534
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		// change makes DIR/bin/check, which root owns, what it is about.
		change func(dir string)
		spec   Spec
		want   string // after DIR; empty for nothing
	}{
		{name: "root's alone", change: func(string) {}},
		{name: "dots and slashes", change: func(string) {}, spec: Spec{Args: []string{"/bin/..//bin/./check"}}},
		{name: "missing", change: func(dir string) { do(os.Remove(dir + "/bin/check")) }, want: "/bin/check: no such file or directory"},
		{name: "directory", change: func(string) {}, spec: Spec{Args: []string{"/bin"}}, want: "/bin is not a regular file"},
		{name: "file as directory", change: func(string) {}, spec: Spec{Args: []string{"/bin/check/x"}}, want: "/bin/check: not a directory"},
		{name: "not executable", change: func(dir string) { do(os.Chmod(dir+"/bin/check", 0o600)) }, want: "/bin/check is not executable"},
		{name: "written by all", change: func(dir string) { do(os.Chmod(dir+"/bin/check", 0o757)) }, want: "/bin/check can be changed by everybody"},
		{name: "written by root's group", change: func(dir string) { do(os.Chmod(dir+"/bin/check", 0o775)) }},
		{name: "written by a group", change: func(dir string) {
			do(os.Chown(dir+"/bin/check", 0, nobody), os.Chmod(dir+"/bin/check", 0o775))
		}, want: "/bin/check can be changed by group 65534"},
		{name: "owned by another", change: func(dir string) { do(os.Chown(dir+"/bin/check", nobody, 0)) }, want: "/bin/check can be changed by user 65534"},
		{name: "owned by who runs it", change: func(dir string) { do(os.Chown(dir+"/bin/check", nobody, 0)) }, spec: Spec{User: "65534", Group: "65534"}},
		{name: "directory of another", change: func(dir string) { do(os.Chown(dir+"/bin", nobody, 0)) }, want: "/bin can be changed by user 65534"},
		{name: "directory written by all", change: func(dir string) { do(os.Chmod(dir+"/bin", 0o777)) }, want: "/bin can be changed by everybody"},
		{name: "sticky directory", change: func(dir string) { do(os.Chmod(dir+"/bin", 0o777|os.ModeSticky)) }},
		{name: "link", change: func(dir string) {
			do(os.Rename(dir+"/bin/check", dir+"/real"), os.Symlink("../real", dir+"/bin/check"))
		}},
		{name: "link to what others change", change: func(dir string) {
			do(os.Mkdir(dir+"/open", 0o755), os.Chmod(dir+"/open", 0o777), os.Rename(dir+"/bin/check", dir+"/open/check"), os.Symlink(dir+"/open/check", dir+"/bin/check"))
		}, want: "/open can be changed by everybody"},
		{name: "linked directory", change: func(dir string) {
			do(os.Rename(dir+"/bin", dir+"/real"), os.Symlink("real/", dir+"/bin"))
		}},
		{name: "link of another", change: func(dir string) {
			do(os.Rename(dir+"/bin/check", dir+"/real"), os.Symlink("../real", dir+"/bin/check"), os.Lchown(dir+"/bin/check", nobody, 0))
		}, want: "/bin/check can be changed by user 65534"},
		{name: "loop", change: func(dir string) { do(os.Remove(dir+"/bin/check"), os.Symlink("check", dir+"/bin/check")) }, want: "/bin/check: too many levels of symbolic links"},
		{name: "user", change: func(string) {}, spec: Spec{User: "no-such-user"}, want: "user no-such-user: user: unknown user no-such-user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "lbd")
			do(os.Mkdir(dir, 0o755), os.Mkdir(dir+"/bin", 0o755), os.WriteFile(dir+"/bin/check", []byte("#!/bin/true\n"), 0o755))
			tt.change(dir)
			if tt.spec.Args == nil {
				tt.spec.Args = []string{"/bin/check"}
			}
			tt.spec.Args[0] = dir + tt.spec.Args[0]
			err := Exposed(tt.spec)
			if tt.want == "" && err == nil {
				return
			}
			if tt.want == "" || err == nil || !strings.HasSuffix(err.Error(), tt.want) || !strings.HasPrefix(tt.want, "/") && err.Error() != tt.want {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}
