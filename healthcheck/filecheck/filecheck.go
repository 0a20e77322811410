package filecheck

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	// Multiplier makes the number a change of the weight: the number times this,
	// which both may be negative, is added to the weight. 0 is for files with the
	// weight itself. At most MaxMultiplier either way.
	Multiplier int
}

// MaxMultiplier is the greatest Multiplier, and with a minus the least.
const MaxMultiplier = 65535

// Key returns "file", the path, and the multiplier unless it is 0.
func (c Check) Key() string {
	s := fmt.Sprintf("file path=%q", c.Path)
	if c.Multiplier != 0 {
		s += fmt.Sprintf(" multiplier=%d", c.Multiplier)
	}
	return s
}

// NewChecker returns a checker. It looks neither at the target nor for the file,
// which may come later.
func (c Check) NewChecker(_ netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	if !filepath.IsAbs(c.Path) || strings.ContainsRune(c.Path, 0) {
		return nil, fmt.Errorf("file check: %q is not an absolute path", c.Path)
	}
	if c.Multiplier < -MaxMultiplier || c.Multiplier > MaxMultiplier {
		return nil, fmt.Errorf("file check: multiplier %d is not within %d to %d", c.Multiplier, -MaxMultiplier, MaxMultiplier)
	}
	return checker{c.Path, c.Multiplier, env}, nil
}

type checker struct {
	path       string
	multiplier int
	env        healthcheck.Env
}

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
	end, err := c.env.BeginRead(ctx)
	if err != nil {
		return healthcheck.Weight{}, err
	}
	defer end()
	text, err := read(c.path, maxSize)
	if err != nil {
		return healthcheck.Weight{}, err
	}
	if c.multiplier != 0 {
		return parseChange(text, c.multiplier)
	}
	return parse(text)
}

// parseChange reads a number that is added to the weight as many times as
// multiplier says.
func parseChange(text []byte, multiplier int) (healthcheck.Weight, error) {
	s := strings.TrimSpace(string(text))
	if s == "" {
		return healthcheck.Weight{}, errors.New("is empty")
	}
	if strings.HasSuffix(s, "%") {
		return healthcheck.Weight{}, errors.New("holds a percentage, which no multiplier goes with")
	}
	n, err := strconv.ParseInt(s, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return healthcheck.Weight{}, fmt.Errorf("holds a number that is not within %d to %d", math.MinInt32, math.MaxInt32)
	case err != nil:
		return healthcheck.Weight{}, errors.New("holds no number")
	}
	change := n * int64(multiplier)
	switch {
	case change <= math.MinInt32:
		return healthcheck.Weight{}, fmt.Errorf("holds a number that, multiplied by %d, is %d: a failure", multiplier, change)
	case change < 0:
		return healthcheck.Weight{Kind: healthcheck.WeightLess, Value: uint32(min(-change, healthcheck.MaxWeight))}, nil
	}
	return healthcheck.Weight{Kind: healthcheck.WeightMore, Value: uint32(min(change, healthcheck.MaxWeight))}, nil
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
