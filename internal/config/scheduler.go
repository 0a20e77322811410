package config

import (
	"slices"
	"strings"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// kernelSchedulers are those that Linux and the userspace engine have. The kernel
// may have others, built by hand; only asking it tells. userspaceSchedulers are
// those that the userspace engine has besides, tieSchedulers those of both in
// which real servers can be equal.
var (
	kernelSchedulers    = schedulers(func(i sched.Info) bool { return i.Kernel })
	userspaceSchedulers = schedulers(func(i sched.Info) bool { return !i.Kernel })
	tieSchedulers       = schedulers(func(i sched.Info) bool { return i.Ties })
)

func schedulers(pick func(sched.Info) bool) []string {
	var names []string
	for _, i := range sched.Schedulers() {
		if pick(i) {
			names = append(names, i.Name)
		}
	}
	return names
}

// and prints "a, b and c".
func and(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// maxSchedulerName is IP_VS_SCHEDNAME_MAXLEN less the final zero.
const maxSchedulerName = 15

// schedulerSyntax says whether the kernel could have a scheduler of that name.
func schedulerSyntax(name string) bool {
	if name == "" || len(name) > maxSchedulerName || name == "none" {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// hashes says whether the scheduler ties a client to a real server, so that a
// quiesced one drops its clients unless a flag lets them fall back.
func hashes(s ipvs.Scheduler) bool { return s == "sh" || s == "dh" || s == "mh" }

// needsCounts says whether the scheduler compares connection counts, which
// one-packet scheduling never raises.
func needsCounts(s ipvs.Scheduler) bool {
	return slices.Contains([]ipvs.Scheduler{"lc", "wlc", "sed", "nq", "wlc-fair", "p2c", "least-time", "least-active"}, s)
}

// flagOf returns the flag and the scheduler that has it.
func flagOf(word string) (ipvs.ServiceFlags, ipvs.Scheduler) {
	switch word {
	case "sh-port":
		return ipvs.FlagSHPort, "sh"
	case "sh-fallback":
		return ipvs.FlagSHFallback, "sh"
	case "mh-port":
		return ipvs.FlagMHPort, "mh"
	default:
		return ipvs.FlagMHFallback, "mh"
	}
}
