package vm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// initPackage is the guest's init program.
const initPackage = "github.com/lbd-project/lbd/internal/vm/vminit"

// buildInit builds the guest's init program and returns it. Several runners
// may share a cache: one builds at a time, and the go command only looks at the
// sources where the program is up to date.
func buildInit(ctx context.Context, cache string) ([]byte, error) {
	out, err := goCommand(ctx, "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	mod := strings.TrimSpace(string(out))
	dir := filepath.Join(cache, "init")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Each checkout has its own sources, so its own program.
	file := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(mod)))[:16])
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := goCommand(ctx, "build", "-ldflags=-s -w", "-o", file, initPackage); err != nil {
		return nil, fmt.Errorf("build the guest's init program: %w", err)
	}
	return os.ReadFile(file)
}

// goCommand runs the go command for static amd64 programs.
func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
