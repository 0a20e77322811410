package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func testRoot() *cobra.Command {
	return newApp(strings.NewReader(""), io.Discard, io.Discard).rootCommand()
}

// TestPackaging compares the files that packages install with the commands;
// go generate rewrites them.
func TestPackaging(t *testing.T) {
	files := map[string]string{"man/ipvsctl.8": manPage(testRoot())}
	for shell, name := range map[string]string{"bash": "ipvsctl.bash", "zsh": "_ipvsctl", "fish": "ipvsctl.fish"} {
		var out, errOut bytes.Buffer
		if code := run([]string{"completion", shell}, strings.NewReader(""), &out, &errOut); code != exitDone {
			t.Fatalf("completion %s: exit status %d: %s", shell, code, errOut.String())
		}
		files["completions/"+name] = out.String()
	}
	for name, got := range files {
		path := filepath.Join("..", "..", "packaging", name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is not what the commands say; run go generate ./cmd/ipvsctl (-want +got):\n%s", path, diff)
		}
	}
}

// TestHelp holds every command to the form of the help.
func TestHelp(t *testing.T) {
	root := testRoot()
	for _, c := range append(root.Commands(), root) {
		var b strings.Builder
		help(&b, c)
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) >= 40 {
			t.Errorf("%s: the help has %d lines", c.Name(), len(lines))
		}
		for _, l := range lines {
			if len(l) > 80 {
				t.Errorf("%s: longer than 80 columns: %s", c.Name(), l)
			}
		}
		if c.Short == "" || c.Long == "" || c.Args == nil || !strings.HasSuffix(strings.TrimSpace(c.Long), ".") {
			t.Errorf("%s: Short, Long with a full stop and Args must be set", c.Name())
		}
		if c.Name() != "help" && c.Example == "" {
			t.Errorf("%s: no example", c.Name())
		}
	}
}
