package userspace

import (
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

// sysctls are settings that IPVS has in the kernel and the engine has itself.
type sysctls struct {
	expireNodestConn, expireQuiescentTemplate bool
	connReuseMode                             int
}

// defaultSysctls are the kernel's.
var defaultSysctls = sysctls{connReuseMode: 1}

const (
	sysctlNodest    = "net.ipv4.vs.expire_nodest_conn"
	sysctlQuiescent = "net.ipv4.vs.expire_quiescent_template"
	sysctlReuse     = "net.ipv4.vs.conn_reuse_mode"
)

// get returns a setting by its name.
func (s *sysctls) get(name string) (int, bool) {
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	switch name {
	case sysctlNodest:
		return number(s.expireNodestConn), true
	case sysctlQuiescent:
		return number(s.expireQuiescentTemplate), true
	case sysctlReuse:
		return s.connReuseMode, true
	}
	return 0, false
}

// set changes a setting and reports whether there is one of that name.
func (s *sysctls) set(name string, v int) bool {
	switch name {
	case sysctlNodest:
		s.expireNodestConn = v != 0
	case sysctlQuiescent:
		s.expireQuiescentTemplate = v != 0
	case sysctlReuse:
		s.connReuseMode = v
	default:
		return false
	}
	return true
}

var sysctlNames = []string{sysctlNodest, sysctlQuiescent, sysctlReuse}

// Sysctl returns a setting of net.ipv4.vs that the engine has of its own, such as
// "net.ipv4.vs.expire_nodest_conn". For any other name the error matches
// fs.ErrNotExist.
func (e *Engine) Sysctl(name string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, ok := e.sysctls.get(name)
	if !ok {
		return "", noSysctl(name)
	}
	return strconv.Itoa(v), nil
}

// SetSysctl changes a setting and returns what it was before. For a name that
// Sysctl does not know the error matches fs.ErrNotExist.
func (e *Engine) SetSysctl(name, value string) (old string, err error) {
	e.writes <- struct{}{} // nobody has it for long
	defer e.unlockWrites()
	before := e.sysctls
	was, ok := before.get(name)
	if !ok {
		return "", noSysctl(name)
	}
	old = strconv.Itoa(was)
	v, err := strconv.Atoi(value)
	if err != nil || v < 0 || v > 0xffff {
		return old, fmt.Errorf("sysctl %s: %q is not a small number: %w", name, value, syscall.EINVAL)
	}
	next := before
	next.set(name, v)
	if next == before {
		return old, nil
	}
	set := func(s sysctls) {
		e.mu.Lock()
		e.sysctls = s
		e.mu.Unlock()
	}
	set(next)
	if err := e.save(e.current()); err != nil {
		set(before)
		return old, fmt.Errorf("sysctl %s: keep it: %w", name, err)
	}
	return old, nil
}

func noSysctl(name string) error {
	return fmt.Errorf("sysctl %s: the userspace engine has no such setting: %w", name, fs.ErrNotExist)
}
