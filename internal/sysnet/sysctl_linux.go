package sysnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Sysctl returns a setting of the namespace, such as "net.ipv4.vs.conntrack",
// without the line end. errors.Is(err, fs.ErrNotExist) tells that the kernel has
// no such setting, for instance because the module is not loaded.
func (n *Namespace) Sysctl(name string) (string, error) {
	path, err := sysctlPath(name)
	if err != nil {
		return "", err
	}
	var value []byte
	err = n.Do(func() (err error) {
		value, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return "", sysctlError("read", name, err)
	}
	return strings.TrimRight(string(value), "\n"), nil
}

// SetSysctl makes a setting of the namespace what value says, and returns what
// it was before, also together with an error where that could be read. A setting
// that has the value is not written. errors.Is(err, fs.ErrNotExist) tells that
// the kernel has no such setting.
func (n *Namespace) SetSysctl(name, value string) (old string, err error) {
	path, err := sysctlPath(name)
	if err != nil {
		return "", err
	}
	old, err = n.Sysctl(name)
	if err != nil || sameValue(old, value) {
		return old, err
	}
	err = n.Do(func() error {
		// O_CREATE and O_TRUNC mean nothing there; a single write sets the value.
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value + "\n")
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return old, sysctlError(fmt.Sprintf("set to %q", value), name, err)
	}
	return old, nil
}

// sysctlError names the setting in the place of its path.
func sysctlError(op, name string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sysctl %s: the kernel has no such setting%s: %w", name, sysctlHint(name), err)
	}
	return fmt.Errorf("sysctl %s: %s: %w", name, op, err)
}
