package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/memory/files"
)

const (
	stateName = "state.json"
	lockName  = "lbd.lock"
	// corruptSuffix is added to the name of a file that lbd did not write.
	corruptSuffix = ".corrupt"
)

// LockedError says that another process has the store.
type LockedError = files.LockedError

// Store is a directory that one process at a time keeps its memory in. Make one
// with Open. Load and Save must not be called concurrently.
type Store struct {
	dir  *files.Dir
	lock *files.Lock
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
	// The control socket may live there too, so others may enter it.
	d, err := files.Open(dir, 0o755)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: d, log: log, bootID: bootID, uptime: uptime}
	if s.lock, err = d.Lock(lockName); err != nil {
		d.Close()
		return nil, err
	}
	for _, name := range []string{stateName, engineName} {
		if err := d.RemoveLeftovers(name); err != nil {
			log.Warn("cannot remove what an interrupted save left", "err", err)
		}
	}
	return s, nil
}

// Close gives the lock back.
func (s *Store) Close() error {
	return errors.Join(s.lock.Close(), s.dir.Close())
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
		s.log.Info("memory of an earlier boot is ignored", "file", s.dir.Path(stateName))
		return Memory{}, nil
	}
	now, err := s.uptime()
	if err != nil {
		return Memory{}, err
	}
	var d decoder
	s.unknown = d.decode(fields, now)
	for _, w := range d.warnings {
		s.log.Warn("part of the memory is lost", "file", s.dir.Path(stateName), "err", w)
	}
	return d.memory, nil
}

// read returns a file's content, nil if there is none. What lbd did not write is
// moved aside.
func (s *Store) read(name string) ([]byte, error) {
	b, err := s.dir.Read(name)
	var bad *files.UntrustedError
	if errors.As(err, &bad) {
		return nil, s.moveAside(name, bad)
	}
	return b, err
}

func (s *Store) moveAside(name string, why error) error {
	if err := s.dir.Rename(name, name+corruptSuffix); err != nil {
		return fmt.Errorf("%s is unusable (%v) and cannot be moved aside: %w", s.dir.Path(name), why, err)
	}
	s.log.Warn("memory is unusable and was moved aside: lbd forgets what it owned",
		"file", s.dir.Path(name+corruptSuffix), "err", why)
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
	return s.dir.Replace(stateName, b)
}

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

// Holds reports whether a path is that of a file of the store, by whatever name of
// the directory.
func (s *Store) Holds(path string) bool {
	switch strings.TrimSuffix(filepath.Base(path), corruptSuffix) {
	case stateName, engineName, lockName:
	default:
		return false
	}
	theirs, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	ours, err := os.Stat(s.dir.Path("."))
	return err == nil && os.SameFile(theirs, ours)
}
