package command

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"strconv"
)

// account is who a program runs as.
type account struct {
	uid, gid uint32
	// groups are the supplementary groups.
	groups []uint32
}

// lookup finds a user and a group, each by name or number, in the databases of
// this host; nil for no user. lbd is built without cgo, so the databases are
// /etc/passwd and /etc/group: users of a directory service go by number.
func lookup(userName, groupName string) (*account, error) {
	if userName == "" {
		if groupName != "" {
			return nil, fmt.Errorf("group %s without a user", groupName)
		}
		return nil, nil
	}
	var a account
	u, err := findUser(userName)
	switch {
	case err == nil:
		if a, err = accountOf(u); err != nil {
			return nil, fmt.Errorf("user %s: %w", userName, err)
		}
	case !unknown(err):
		return nil, fmt.Errorf("user %s: %w", userName, err)
	default:
		n, nerr := id(userName)
		if nerr != nil {
			return nil, fmt.Errorf("user %s: %w", userName, err)
		}
		if groupName == "" {
			return nil, fmt.Errorf("user %s: not in the user database, and no group given", userName)
		}
		a.uid = n
	}
	if groupName == "" {
		return &a, nil
	}
	gid, err := findGroup(groupName)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", groupName, err)
	}
	// The user's first group is the one that the given group stands in for.
	var groups []uint32
	for _, g := range a.groups {
		if g != a.gid || g == gid {
			groups = append(groups, g)
		}
	}
	a.gid, a.groups = gid, groups
	return &a, nil
}

// findUser finds a user by name, then by number.
func findUser(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if err == nil || !unknown(err) {
		return u, err
	}
	if _, nerr := id(name); nerr != nil {
		return nil, err
	}
	return user.LookupId(name)
}

// findGroup finds the number of a group by name; a number may be unknown.
func findGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err == nil {
		return id(g.Gid)
	}
	if n, nerr := id(name); nerr == nil && unknown(err) {
		return n, nil
	}
	return 0, err
}

// accountOf returns the ids of a user and of all groups it is a member of.
func accountOf(u *user.User) (a account, err error) {
	if a.uid, err = id(u.Uid); err != nil {
		return a, err
	}
	if a.gid, err = id(u.Gid); err != nil {
		return a, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return a, fmt.Errorf("list groups: %w", err)
	}
	for _, s := range ids {
		g, err := id(s)
		if err != nil {
			return a, err
		}
		a.groups = append(a.groups, g)
	}
	return a, nil
}

// id parses a number of a user or group. All ones mean "no change" to the
// kernel.
func id(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == math.MaxUint32 {
		err = errors.New("out of range")
	}
	return uint32(n), err
}

// unknown reports whether a lookup worked and found nobody.
func unknown(err error) bool {
	if _, ok := errors.AsType[user.UnknownUserError](err); ok {
		return true
	}
	if _, ok := errors.AsType[user.UnknownUserIdError](err); ok {
		return true
	}
	_, ok := errors.AsType[user.UnknownGroupError](err)
	return ok
}
