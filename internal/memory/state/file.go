package state

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lbd-project/lbd/internal/memory/files"
)

// What is added to the name of a file that is set aside: one that could not be
// understood, and one that was too old.
const (
	corruptSuffix = ".corrupt"
	staleSuffix   = ".stale"
)

// File is the state file of one lbd. Make one with Open. Its methods must not be
// called concurrently.
type File struct {
	dir  *files.Dir
	lock *files.Lock
	name string
	// unread is why there may be something in the file that nobody has seen.
	unread error
	clock  clock
}

// clock is the host's, or a test's.
type clock struct {
	bootID string
	// uptime is the time since boot, suspend included.
	uptime func() time.Duration
	now    func() time.Time
}

// Open opens the file at an absolute path for this process alone. Its directory is
// made, for this user only, if it is missing; the one above it must exist. The
// error is a *files.LockedError if another process has the file.
func Open(path string) (*File, error) {
	c, err := hostClock()
	if err != nil {
		return nil, err
	}
	return open(path, c)
}

func open(path string, c clock) (*File, error) {
	dir, err := files.Open(filepath.Dir(path), 0o700)
	if err != nil {
		return nil, err
	}
	f := &File{dir: dir, name: filepath.Base(path), clock: c}
	// Beside the file, which is replaced.
	if f.lock, err = dir.Lock("." + f.name + ".lock"); err != nil {
		dir.Close()
		return nil, err
	}
	if err := dir.RemoveLeftovers(f.name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close gives the file free.
func (f *File) Close() error { return errors.Join(f.lock.Close(), f.dir.Close()) }

// Path is where the file is.
func (f *File) Path() string { return f.dir.Path(f.name) }

// Load returns what the file says, with its times aged, and warnings about what
// was lost: parts of it that cannot be understood are missing, and kept in a file
// beside it with the rest. A file that is none of lbd's, or that no lbd has
// written for longer than maxAge, is set aside whole; 0 is any age. An error means
// that it could not be read; Save fails then, too.
func (f *File) Load(maxAge time.Duration) (o Overrides, warnings []string, err error) {
	b, err := f.dir.Read(f.name)
	var bad *files.UntrustedError
	switch {
	case errors.As(err, &bad):
		return f.setAside(corruptSuffix, fmt.Sprintf("is unusable (%v)", bad))
	case err != nil:
		f.unread = err
		return nil, nil, err
	case b == nil:
		return nil, nil, nil
	}
	d := decoder{}
	age, err := d.decode(b, f.clock)
	if err != nil {
		return f.setAside(corruptSuffix, fmt.Sprintf("is unusable (%v)", err))
	}
	if maxAge > 0 && age > maxAge && len(d.overrides) > 0 {
		return f.setAside(staleSuffix, fmt.Sprintf("is %v old, state_max_age is %v", age.Round(time.Second), maxAge))
	}
	if len(d.warnings) > 0 {
		// The next Save would drop for good what was not understood.
		if err := f.dir.Replace(f.name+corruptSuffix, b); err != nil {
			d.warnings = append(d.warnings, fmt.Sprintf("not kept: %v", err))
		} else {
			d.warnings = append(d.warnings, "the whole file is kept as "+f.dir.Path(f.name+corruptSuffix))
		}
	}
	for i, w := range d.warnings {
		d.warnings[i] = "state_file " + f.Path() + ": " + w
	}
	return d.overrides, d.warnings, nil
}

// setAside renames the file, so that nothing is lost.
func (f *File) setAside(suffix, why string) (Overrides, []string, error) {
	if err := f.dir.Rename(f.name, f.name+suffix); err != nil {
		f.unread = fmt.Errorf("state_file %s %s and cannot be set aside: %w", f.Path(), why, err)
		return nil, nil, f.unread
	}
	return nil, []string{fmt.Sprintf("state_file %s %s: set aside as %s, no admin state is in force that was set before",
		f.Path(), why, f.dir.Path(f.name+suffix))}, nil
}

// Save writes o in place of what is there, wholly or not at all, and returns when
// it is on the disk.
func (f *File) Save(o Overrides) error {
	if f.unread != nil {
		return f.unread
	}
	b, err := encode(o, f.clock)
	if err != nil {
		return err
	}
	if err := f.dir.Replace(f.name, b); err != nil {
		return err
	}
	return f.dir.Sync()
}
