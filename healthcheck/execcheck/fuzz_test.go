package execcheck

import (
	"strings"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/command"
)

// FuzzJudge has a program end with any status and output.
func FuzzJudge(f *testing.F) {
	f.Add(uint8(0), []byte("ok\n"), false)
	f.Add(uint8(1), []byte("\n \x1b[31m bad \xff\r\nmore"), true)
	f.Add(uint8(2), []byte(nil), true)
	f.Add(uint8(255), []byte(strings.Repeat("x", 4096)), true)
	f.Fuzz(func(t *testing.T, code uint8, output []byte, dynamic bool) {
		k := &checker{name: "check-db", dynamic: dynamic}
		r, err := k.judge(command.Result{Code: int(code), Output: output}, nil)
		checktest.Shown(t, r.Detail)
		if good := code == 0 || code >= 2 && dynamic; good != (err == nil) {
			t.Fatalf("status %d, dynamic %v: got %v", code, dynamic, err)
		}
		if err != nil {
			checktest.Shown(t, err.Error())
		}
		want := healthcheck.Advice{}
		if code >= 2 && dynamic {
			want.Weight = healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: uint32(code) - 2}
		}
		if r.Advice != want {
			t.Fatalf("status %d, dynamic %v: want %+v, got %+v", code, dynamic, want, r.Advice)
		}
	})
}
