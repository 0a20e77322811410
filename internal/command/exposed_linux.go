package command

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// Exposed says why another program may run than who wrote the Spec meant: there is
// none, or somebody else than root and the user that it runs as may change it, put
// another in its place, or may do so with a directory on the way. It is nil where
// all is well. It looks at the file system, and waits as long as that takes.
func Exposed(s Spec) error {
	c, err := New(s)
	if err != nil {
		return err
	}
	t := trust{uids: []uint32{0, uint32(os.Geteuid())}, gids: []uint32{0}}
	if a := c.account; a != nil {
		t.uids, t.gids = append(t.uids, a.uid), append(t.gids, a.gid)
	}
	return t.walk(s.Args[0])
}

// trust is who may change a program.
type trust struct{ uids, gids []uint32 }

// walk looks at everything on the way to a file, and at the file.
func (t trust) walk(path string) error {
	if err := t.look("/", true); err != nil {
		return err
	}
	at, rest := "/", path
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return &fs.PathError{Op: "follow", Path: next, Err: syscall.ELOOP}
			}
			// Only who may write to the directory may change a link, and where that
			// is sticky its owner.
			if err := t.owned(next, info); err != nil {
				return err
			}
			to, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if filepath.IsAbs(to) {
				at = "/"
			}
			// Not cleaned: what is before .. may be a link, too.
			rest = to + "/" + rest
		default:
			if err := t.look(next, strings.Trim(rest, "/") != ""); err != nil {
				return err
			}
			at = next
		}
	}
	return nil
}

// look looks at a directory or at the program.
func (t trust) look(path string, dir bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mode := info.Mode()
	switch {
	case dir && !mode.IsDir():
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	case !dir && !mode.IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case !dir && mode&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	if err := t.owned(path, info); err != nil {
		return err
	}
	if dir && mode&fs.ModeSticky != 0 {
		return nil // whose entries only their owners replace
	}
	if mode&0o002 != 0 {
		return exposed(path, "everybody")
	}
	if gid := info.Sys().(*syscall.Stat_t).Gid; mode&0o020 != 0 && !slices.Contains(t.gids, gid) {
		return exposed(path, fmt.Sprintf("group %d", gid))
	}
	return nil
}

// owned looks at who owns a file: that may do everything with it.
func (t trust) owned(path string, info fs.FileInfo) error {
	if uid := info.Sys().(*syscall.Stat_t).Uid; !slices.Contains(t.uids, uid) {
		return exposed(path, fmt.Sprintf("user %d", uid))
	}
	return nil
}

func exposed(path, who string) error { return fmt.Errorf("%s can be changed by %s", path, who) }
