package daemon

import "golang.org/x/sys/unix"

const (
	// filesElsewhere are the descriptors that everything but the checks may
	// take: clients of the control socket, netlink sockets, files.
	filesElsewhere = 512
	// filesPerCheck is the most that one check takes: a program has pipes.
	filesPerCheck = 4
	// leastChecks run at once however low the limit is.
	leastChecks = 16
)

// parallelChecks returns how many checks may run at once. One that finds no free
// descriptor would call a healthy real server dead, so the others wait in line
// before that. Go has raised the soft limit to the hard one.
func parallelChecks() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 1024 // what it is where nobody sets it
	}
	return checksWithin(limit.Cur)
}

// checksWithin is parallelChecks for a limit of open files.
func checksWithin(files uint64) int {
	const most = 1 << 20 // RLIM_INFINITY is no number of files
	files = min(files, most)
	if files < filesElsewhere+leastChecks*filesPerCheck {
		return leastChecks
	}
	return int(files-filesElsewhere) / filesPerCheck
}
