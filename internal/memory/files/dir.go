package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

// MaxSize bounds what is read, far above any real table: 100,000 real servers
// take 6 MB.
const MaxSize = 256 << 20

// Dir is a directory with files. Make one with Open.
type Dir struct {
	root *os.Root
	// step, if set, is called at each step of a Replace; its error ends it there.
	// It is for tests.
	step func(what string) error
}

// Open opens a directory that only this user may write to, and makes it with the
// given mode if it is missing; the directory above must exist.
func Open(dir string, mode fs.FileMode) (*Dir, error) {
	switch err := os.Mkdir(dir, mode); {
	case err == nil:
		if err := os.Chmod(dir, mode); err != nil { // whatever the umask is
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	// From here on the directory that was opened counts, not its name.
	if info, err = root.Stat("."); err == nil {
		err = ours(info)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("directory %s: %w", dir, err)
	}
	return &Dir{root: root}, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Path returns the path of a file, for people.
func (d *Dir) Path(name string) string { return filepath.Join(d.root.Name(), name) }

// ours says why a file or directory cannot be trusted.
func ours(info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("may be written to by others (mode %v)", info.Mode().Perm())
	}
	return nil
}

// UntrustedError says why a file is none that this user wrote as it is.
type UntrustedError struct{ err error }

// Error says why.
func (e *UntrustedError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *UntrustedError) Unwrap() error { return e.err }

// Read returns a file's content; nil if there is none. The error is an
// *UntrustedError for a file that this user did not write as it is.
func (d *Dir) Read(name string) ([]byte, error) {
	b, err := d.read(name)
	var bad *UntrustedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil && !errors.As(err, &bad):
		return nil, fmt.Errorf("read %s: %w", d.Path(name), err)
	}
	return b, err
}

func (d *Dir) read(name string) ([]byte, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &UntrustedError{errors.New("not a regular file")}
	}
	if err := ours(info); err != nil {
		return nil, &UntrustedError{err}
	}
	if info.Size() > MaxSize {
		return nil, &UntrustedError{fmt.Errorf("larger than %d bytes", MaxSize)}
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(b) > MaxSize {
		err = &UntrustedError{fmt.Errorf("larger than %d bytes", MaxSize)}
	}
	return b, err
}

// Rename gives a file another name in place of whatever has it.
func (d *Dir) Rename(from, to string) error { return d.root.Rename(from, to) }

// Remove removes a file. The error matches fs.ErrNotExist if there is none.
func (d *Dir) Remove(name string) error { return d.root.Remove(name) }

// Replace writes a file in place of what is there, wholly or not at all. Nobody
// but this user may read it.
func (d *Dir) Replace(name string, parts ...[]byte) error {
	err := d.replace(name, parts)
	var pe *fs.PathError
	if errors.As(err, &pe) {
		// Its path is that of a temporary file, another one each time: whoever
		// logs an error once would log each.
		err = pe.Err
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.Path(name), err)
	}
	return nil
}

func (d *Dir) replace(name string, parts [][]byte) error {
	f, err := renameio.NewPendingFile(name, renameio.WithRoot(d.root), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := d.at("created"); err != nil {
		return err
	}
	for _, b := range parts {
		half := len(b) / 2
		for _, b := range [][]byte{b[:half], b[half:]} {
			if _, err := f.Write(b); err != nil {
				return err
			}
			if err := d.at("written"); err != nil {
				return err
			}
		}
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return d.at("replaced")
}

// at tells a test of a step.
func (d *Dir) at(what string) error {
	if d.step == nil {
		return nil
	}
	return d.step(what)
}

// Sync makes sure that what was replaced is found after the power failed.
func (d *Dir) Sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.root.Name(), err)
	}
	return nil
}

// RemoveLeftovers removes what a Replace of a file left that was killed, and
// returns what it could not remove.
func (d *Dir) RemoveLeftovers(name string) error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		// A random number follows.
		rest, ok := strings.CutPrefix(e.Name(), "."+name)
		if !ok || rest == "" || strings.Trim(rest, "0123456789") != "" {
			continue
		}
		if err := d.root.Remove(e.Name()); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
