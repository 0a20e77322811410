package filecheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// maxSize is the size of the largest file in bytes.
const maxSize = 64

// Check reads the weight from a file. It implements healthcheck.Method.
type Check struct {
	// Path is the absolute path of the file.
	Path string
}

// Key returns "file" and the path.
func (c Check) Key() string { return fmt.Sprintf("file path=%q", c.Path) }

// NewChecker returns a checker. It looks neither at the target nor for the file,
// which may come later.
func (c Check) NewChecker(netip.AddrPort, healthcheck.Env) (healthcheck.Checker, error) {
	if !filepath.IsAbs(c.Path) || strings.ContainsRune(c.Path, 0) {
		return nil, fmt.Errorf("file check: %q is not an absolute path", c.Path)
	}
	return checker{c.Path}, nil
}

type checker struct{ path string }

// Check implements healthcheck.Checker.
func (c checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	w, err := c.weight(ctx)
	res := healthcheck.Result{Latency: time.Since(begun)}
	if err != nil {
		return res, fmt.Errorf("file %s: %w", c.path, err)
	}
	res.Detail = "weight " + w.String()
	res.Advice.Weight = w
	return res, nil
}

func (c checker) weight(ctx context.Context) (healthcheck.Weight, error) {
	if err := ctx.Err(); err != nil {
		return healthcheck.Weight{}, err
	}
	text, err := read(c.path, maxSize)
	if err != nil {
		return healthcheck.Weight{}, err
	}
	return parse(text)
}

// parse reads a number or a percentage. Its errors do not quote the text, which
// may be anything.
func parse(text []byte) (healthcheck.Weight, error) {
	s := strings.TrimSpace(string(text))
	if s == "" {
		return healthcheck.Weight{}, errors.New("is empty")
	}
	w := healthcheck.Weight{Kind: healthcheck.WeightAbsolute}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		s, w.Kind = number, healthcheck.WeightPercent
	}
	// ParseUint takes no sign and, in base 10, no underscores.
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > healthcheck.MaxWeight:
		return healthcheck.Weight{}, fmt.Errorf("holds a number over %d", healthcheck.MaxWeight)
	case err != nil:
		return healthcheck.Weight{}, errors.New("holds no number")
	}
	w.Value = uint32(n)
	return w, nil
}
