package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
)

const (
	stateName = "state.json"
	// corruptSuffix is added to the name of a file that lbd did not write.
	corruptSuffix = ".corrupt"
	// maxSize bounds what is read, far above any real table: 100,000 real servers
	// take 6 MB.
	maxSize = 256 << 20
)

// Store is a directory that one process at a time keeps its memory in. Make one
// with Open. Load and Save must not be called concurrently.
type Store struct {
	dir  *os.Root
	lock *os.File
	log  *slog.Logger
	// bootID and uptime are the host's, or a test's.
	bootID string
	uptime func() (time.Duration, error)
	// unknown are the fields of a newer lbd that Load found.
	unknown map[string]json.RawMessage
}

// Open makes the directory if it is missing, takes its lock, and keeps it until
// Close. It returns a *LockedError if another process has it, and an error if
// the directory is one that others may write to. A nil log discards warnings.
func Open(dir string, log *slog.Logger) (*Store, error) {
	id, err := readBootID()
	if err != nil {
		return nil, err
	}
	return open(dir, log, id, sinceBoot)
}

func open(dir string, log *slog.Logger, bootID string, uptime func() (time.Duration, error)) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	root, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: root, log: log, bootID: bootID, uptime: uptime}
	if s.lock, err = lock(root); err != nil {
		root.Close()
		return nil, err
	}
	s.removeLeftovers()
	return s, nil
}

// Close gives the lock back.
func (s *Store) Close() error {
	return errors.Join(s.lock.Close(), s.dir.Close())
}

// openDir opens a directory that only this user may write to, and makes it if it
// is missing. The control socket may live there too, so others may enter it.
func openDir(dir string) (*os.Root, error) {
	const mode = 0o755
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
	return root, nil
}

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

// removeLeftovers removes files of a Save that was killed.
func (s *Store) removeLeftovers() {
	for _, file := range []string{stateName, engineName} {
		names, err := fs.Glob(s.dir.FS(), "."+file+"*")
		if err != nil {
			return
		}
		for _, name := range names {
			if err := s.dir.Remove(name); err != nil {
				s.log.Warn("cannot remove what an interrupted save left", "file", s.path(name), "err", err)
			}
		}
	}
}

// Load returns the memory that the last Save of this boot wrote, with its times
// aged; the zero Memory if there is none. Parts of it that cannot be understood
// are missing, each with a warning in the log, and a file that is not lbd's at
// all is moved aside. An error means that it could not be read: something may be
// there, and lbd must not go on as if it owned nothing.
func (s *Store) Load() (Memory, error) {
	b, err := s.read(stateName)
	if b == nil || err != nil {
		return Memory{}, err
	}
	fields, bootID, err := readFields(b)
	if err != nil {
		return Memory{}, s.moveAside(stateName, err)
	}
	if bootID != s.bootID {
		s.log.Info("memory of an earlier boot is ignored", "file", s.path(stateName))
		return Memory{}, nil
	}
	now, err := s.uptime()
	if err != nil {
		return Memory{}, err
	}
	var d decoder
	s.unknown = d.decode(fields, now)
	for _, w := range d.warnings {
		s.log.Warn("part of the memory is lost", "file", s.path(stateName), "err", w)
	}
	return d.memory, nil
}

// untrusted is a file that lbd did not write as it is.
type untrusted struct{ error }

// read returns a file's content, nil if there is none. What lbd did not write is
// moved aside.
func (s *Store) read(name string) ([]byte, error) {
	b, err := s.readTrusted(name)
	var bad *untrusted
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &bad):
		return nil, s.moveAside(name, bad)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", s.path(name), err)
	}
	return b, nil
}

// readTrusted follows no symbolic link. The error is an *untrusted for a file
// that lbd did not write as it is.
func (s *Store) readTrusted(name string) ([]byte, error) {
	info, err := s.dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &untrusted{errors.New("not a regular file")}
	}
	if err := ours(info); err != nil {
		return nil, &untrusted{err}
	}
	if info.Size() > maxSize {
		return nil, &untrusted{fmt.Errorf("larger than %d bytes", maxSize)}
	}
	f, err := s.dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(b) > maxSize {
		err = &untrusted{fmt.Errorf("larger than %d bytes", maxSize)}
	}
	return b, err
}

func (s *Store) moveAside(name string, why error) error {
	if err := s.dir.Rename(name, name+corruptSuffix); err != nil {
		return fmt.Errorf("%s is unusable (%v) and cannot be moved aside: %w", s.path(name), why, err)
	}
	s.log.Warn("memory is unusable and was moved aside: lbd forgets what it owned",
		"file", s.path(name+corruptSuffix), "err", why)
	return nil
}

// Save writes m in place of what is there, wholly or not at all. It must be all
// that lbd knows: what is not in m is forgotten.
func (s *Store) Save(m Memory) error {
	now, err := s.uptime()
	if err != nil {
		return err
	}
	b, err := encode(m, header{BootID: s.bootID, SavedMS: now.Milliseconds()}, s.unknown)
	if err != nil {
		return err
	}
	return s.write(stateName, b)
}

// write replaces a file, wholly or not at all.
func (s *Store) write(name string, parts ...[]byte) error {
	err := s.replace(name, parts)
	var pe *fs.PathError
	if errors.As(err, &pe) {
		// Its path is that of a temporary file, another one each time: whoever
		// logs an error once would log each.
		err = pe.Err
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	return nil
}

func (s *Store) replace(name string, parts [][]byte) error {
	f, err := renameio.NewPendingFile(name, renameio.WithRoot(s.dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	for _, b := range parts {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return f.CloseAtomicallyReplace()
}

func (s *Store) path(name string) string { return filepath.Join(s.dir.Name(), name) }

// readBootID returns the kernel's ID of this boot.
func readBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", errors.New("boot ID: empty")
	}
	return id, nil
}
