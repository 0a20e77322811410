package command

import "testing"

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
	for output, want := range map[string]string{
		"":                "",
		" \n\r\n\t":       "",
		"all well":        "all well",
		"\n  a  b\r\nc\n": "a  b",
	} {
		if got := (Result{Output: []byte(output)}).Line(); got != want {
			t.Errorf("%q: want %q, got %q", output, want, got)
		}
	}
}
