package userspace

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
)

func diff(want, got any) string { return cmp.Diff(want, got) }

func connsText(c ipvs.Conns) string {
	return fmt.Sprintf("%d/%d/%d", c.Active, c.Inactive, c.Persistent)
}
