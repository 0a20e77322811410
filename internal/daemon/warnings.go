package daemon

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
)

// What a check warns of changes once a day, unless the real server has several
// certificates and shows another one each time: after warningsAtOnce changes it has
// one told each warningsEvery.
const (
	warningsAtOnce = 6
	warningsEvery  = time.Hour
)

// maxCheckWarnings bounds what the status tells of checks that warn.
const maxCheckWarnings = 10

// warned is what was last told of the warnings of a real server.
type warned struct {
	text string
	allowance
}

// announceWarnings logs what checks warn of, when it comes, changes and goes. Of a
// server one of whose checks is new, what is missing may only not be known yet.
func (o *owner) announceWarnings(now time.Time) {
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		for j := range s.Servers {
			rs := &s.Servers[j]
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: rs.Address}
			was := o.warned[k]
			if was.text == rs.Warning || rs.Unheard || !was.take(now, warningsAtOnce, warningsEvery) {
				continue
			}
			was.text = rs.Warning
			o.warned[k] = was
			e := api.Event{
				Kind: api.EventWarning, Service: s.Name, Key: s.ServiceKey.String(), RealServer: rs.Address.String(),
				State: api.StateRaised, Text: "a check warns", Reason: rs.Warning,
			}
			if rs.Warning == "" {
				e.State, e.Text = api.StateCleared, "no check warns any more"
				o.log.Info(e.Text, "service", s.Name, "real_server", rs.Address)
			} else {
				o.log.Warn(e.Text, "service", s.Name, "real_server", rs.Address, "warning", rs.Warning)
			}
			o.events.add(e)
		}
	}
}

// checkWarnings are the warnings of checks for the status.
func (v *view) checkWarnings() []string {
	if v.fleet == nil {
		return nil
	}
	var list []string
	n := 0
	for i := range v.fleet.Services {
		s := &v.fleet.Services[i]
		for j := range s.Servers {
			rs := &s.Servers[j]
			if rs.Warning == "" {
				continue
			}
			if n++; n <= maxCheckWarnings {
				list = append(list, fmt.Sprintf("%s/%v: %s", s.Name, rs.Address, rs.Warning))
			}
		}
	}
	if n > maxCheckWarnings {
		list = append(list, fmt.Sprintf("checks of %d more real servers warn", n-maxCheckWarnings))
	}
	return list
}
