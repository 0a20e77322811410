package config

import (
	"slices"

	"github.com/lbd-project/lbd/ipvs"
)

const (
	kernelSchedulerList    = "rr, wrr, lc, wlc, lblc, lblcr, dh, sh, mh, sed, nq, fo, ovf, twos"
	userspaceSchedulerList = "swrr, wlc-fair, ring, random, wrandom, p2c, least-time, least-active"
)

// kernelSchedulers are those of Linux. The kernel may have others, built by
// hand; only asking it tells.
var kernelSchedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos"}

// userspaceSchedulers are those that the userspace engine has besides.
var userspaceSchedulers = []string{"swrr", "wlc-fair", "ring", "random", "wrandom", "p2c", "least-time", "least-active"}

// tiesFirst is what the kernel does. It is no part of a scheduler's name.
const tiesFirst = "first"

// hasTies says whether the scheduler compares real servers, so that some can be
// equal.
func hasTies(s ipvs.Scheduler) bool {
	return slices.Contains([]ipvs.Scheduler{"lc", "wlc", "sed", "nq", "least-time", "least-active"}, s)
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
