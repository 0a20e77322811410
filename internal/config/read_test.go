package config

import (
	"fmt"
	"strings"
	"testing"
)

const noServices = "virtual_services: []\n"

// Files that cannot stand in a text archive.
func TestReadBytes(t *testing.T) {
	for _, tt := range []struct {
		name, data, want string
	}{
		{"empty", "", "x:1:1: the file is empty"},
		{"blank lines", "\n\n\n", "x:1:1: the file is empty"},
		{"byte order mark alone", "\ufeff", "x:1:1: the file is empty"},
		{"byte order mark", "\ufeffengine: x\n" + noServices, `x:1:9: engine: want auto, kernel or userspace, got "x"`},
		{"CRLF", "netns: \"\"\r\nengine: x\r\n" + noServices, `x:2:9: engine: want auto, kernel or userspace, got "x"`},
		{"no final newline", "virtual_services: []\nengine: x", `x:2:9: engine: want auto, kernel or userspace, got "x"`},
		{"column after wide characters", "{netns: \"äö\", engine: x, virtual_services: []}", `x:1:23: engine: want auto, kernel or userspace, got "x"`},
		{"NUL", "engine: auto\n" + noServices + "# \x00", "x:3:3: control character 0x00"},
		{"escape", "engine: \x1b[1m\n" + noServices, "x:1:9: control character 0x1b"},
		{"delete", "engine: \x7f\n" + noServices, "x:1:9: control character 0x7f"},
		{"UTF-16", "\xff\xfee\x00", "x:1:1: byte 0xff is not UTF-8: save the file as UTF-8"},
		{"Latin-1", "# \xfcber\n" + noServices, "x:1:3: byte 0xfc is not UTF-8: save the file as UTF-8"},
		{"quoted control character", "netns: \"\\u0000\"\n" + noServices, `x:1:8: netns: "\x00" has a control character`},
		{"too large", noServices + strings.Repeat("#\n", maxSize/2), "x:1:1: the file is larger than 16 MiB"},
		{"too many values", "virtual_services: [\n" + strings.Repeat("{},\n", maxMarks/4) + "]\n",
			"x:1:1: too many values for YAML beyond plain blocks: more than 1048576 of the characters -?:,[]{} and line ends"},
		{"deep brackets", strings.Repeat("[", 20000), "x:1:10001: not YAML: exceeded max depth of 10000"},
		{"second document", noServices + "--- \n...\n---\n", "x:2:1: a second document starts here: the file must be one"},
		{"second document broken", noServices + "---\n@\n", "x:3:1: not YAML: found character that cannot start any token"},
		{"only a separator", "---\n", "x:2:1: the file: want a mapping of keys to values, got nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("x", []byte(tt.data))
			if err == nil {
				t.Fatalf("want %s, got %+v", tt.want, c)
			}
			if err.Error() != tt.want {
				t.Errorf("want %s\ngot  %v", tt.want, err)
			}
		})
	}
}

func TestReadBytesGood(t *testing.T) {
	for _, data := range []string{
		noServices,
		"virtual_services: []",
		"\ufeff" + noServices,
		"# über\r\nvirtual_services: []\r\n",
		"---\n" + noServices + "...\n",
	} {
		if _, err := Parse("x", []byte(data)); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// A hostile file does not collect errors without end.
func TestTooManyErrors(t *testing.T) {
	data := "virtual_services:\n" + strings.Repeat("  - {address: x, weight: y}\n", 100000)
	_, err := Parse("x", []byte(data))
	errs, ok := err.(Errors)
	if !ok || len(errs) != maxKept {
		t.Fatalf("want %d errors, got %d", maxKept, len(errs))
	}
	if want, got := "x:501:26: too many errors: the rest of the file was not read", errs[maxKept-1].Error(); want != got {
		t.Errorf("last error: want %s, got %s", want, got)
	}
	lines := errs.Lines()
	if want, got := "and 980 more", lines[len(lines)-1]; len(lines) != 21 || want != got {
		t.Errorf("last of %d lines: want %q as the 21st, got %q", len(lines), want, got)
	}
}

// Aliases are refused before anything is expanded.
func TestBillionLaughs(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 x\n")
	for i := range 60 {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i)
	}
	_, err := Parse("x", []byte(b.String()+noServices))
	if err == nil || !strings.Contains(err.Error(), "anchors are not supported") {
		t.Errorf("want anchors refused, got %v", err)
	}
}
