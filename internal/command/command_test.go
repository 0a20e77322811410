package command

import (
	"strings"
	"testing"
)

func TestNewErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"nothing":          {Spec{}, "command without a program"},
		"no program":       {Spec{Args: []string{"", "x"}}, "command without a program"},
		"relative":         {Spec{Args: []string{"true"}}, `program "true": not an absolute path`},
		"zero byte":        {Spec{Args: []string{"/bin/true", "a\x00b"}}, `argument "a\x00b": has a zero byte`},
		"variable":         {Spec{Args: []string{"/bin/true"}, Env: []string{"A"}}, `environment variable "A": not of the form NAME=value`},
		"nameless":         {Spec{Args: []string{"/bin/true"}, Env: []string{"=secret"}}, `environment variable "": not of the form NAME=value`},
		"zero in name":     {Spec{Args: []string{"/bin/true"}, Env: []string{"A\x00=1"}}, `environment variable "A\x00": not of the form NAME=value`},
		"zero in value":    {Spec{Args: []string{"/bin/true"}, Env: []string{"A=secret\x00"}}, "environment variable A: has a zero byte"},
		"user":             {Spec{Args: []string{"/bin/true"}, User: "no-such-user"}, "user no-such-user: user: unknown user no-such-user"},
		"group":            {Spec{Args: []string{"/bin/true"}, User: "root", Group: "no-such"}, "group no-such: group: unknown group no-such"},
		"group alone":      {Spec{Args: []string{"/bin/true"}, Group: "root"}, "group root without a user"},
		"number alone":     {Spec{Args: []string{"/bin/true"}, User: "3999999999"}, "user 3999999999: not in the user database, and no group given"},
		"no change":        {Spec{Args: []string{"/bin/true"}, User: "4294967295", Group: "0"}, "user 4294967295: user: unknown user 4294967295"},
		"no change, group": {Spec{Args: []string{"/bin/true"}, User: "root", Group: "4294967295"}, "group 4294967295: group: unknown group 4294967295"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tt.spec); err == nil || err.Error() != tt.want {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}

func TestLine(t *testing.T) {
	long := strings.Repeat("é", 150)
	for name, tt := range map[string]struct{ output, want string }{
		"nothing":     {"", ""},
		"blank":       {" \n\r\n\t", ""},
		"one":         {"all well", "all well"},
		"first":       {"\n  down: disk full\r\nmore\n", "down: disk full"},
		"control":     {"a\x1b[31m\x00b\u0085", "a?[31m?b"},
		"not utf-8":   {"a\xffb", "a?b"},
		"invisible":   {"a\u202eb\u200b", "a?b?"},
		"length":      {long, strings.Repeat("é", 100)},
		"length, odd": {"x" + long, "x" + strings.Repeat("é", 99)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Result{Output: []byte(tt.output)}).Line(); got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("all well\n"))
	f.Add([]byte("\xff\x00\x1b" + strings.Repeat("é", 200)))
	f.Fuzz(func(t *testing.T, b []byte) {
		line := Result{Output: b}.Line()
		if len(line) > maxLine || strings.ContainsAny(line, "\n\r\x00\x1b") || strings.ToValidUTF8(line, "") != line {
			t.Errorf("%q gives %q", b, line)
		}
	})
}
