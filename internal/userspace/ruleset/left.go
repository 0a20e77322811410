package ruleset

import (
	"github.com/google/nftables"

	"github.com/lbd-project/lbd/ipvs"
)

// Left reports whether a network namespace has tables of the name in o, which
// whoever applied them left. It changes nothing. A kernel without nftables has
// none; the error matches fs.ErrPermission without CAP_NET_ADMIN.
func Left(o Options) (bool, error) {
	o, err := o.withDefaults()
	if err != nil {
		return false, err
	}
	r := &Rules{opts: o, flush: (*nftables.Conn).Flush}
	if err := r.dial(); err != nil {
		if absent(err) {
			return false, nil
		}
		return false, err
	}
	defer r.nft.CloseLasting()
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		found, err := r.exists(newTable(&r.opts, &r.able, f))
		if err != nil && !absent(err) {
			return false, err
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}
