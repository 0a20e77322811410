package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ReadFile returns the bytes of a configuration file for Parse, without waiting
// for anybody: whatever the path is, a daemon that loads it again goes on. What
// is not a regular file is an error.
func ReadFile(name string) ([]byte, error) {
	// O_NONBLOCK: opening a FIFO must not wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: notRegular(info.Mode())}
	}
	return ReadAll(f)
}

// ReadAll reads a configuration for Parse, until r ends or there is more than
// Parse takes: then Parse says so.
func ReadAll(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, maxSize+1))
}

func notRegular(mode fs.FileMode) error {
	if mode.IsDir() {
		return syscall.EISDIR
	}
	kind := "a special file"
	switch {
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("is %s, want a regular file", kind)
}
