// Package healthcheck probes real servers.
//
// A Checker makes one probe. A Monitor runs many probes on their schedule and
// turns results into states by rise and fall. It knows nothing of services,
// weights or the kernel.
//
//	m := healthcheck.New(healthcheck.Options{Notify: func(c healthcheck.Change) {
//		log.Println(c.Key, c.State, c.LastErr)
//	}})
//	err := m.Set([]healthcheck.Probe{{
//		Method: healthcheck.TCP{},
//		Target: netip.MustParseAddrPort("10.0.0.2:80"),
//		Timing: healthcheck.Timing{Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3},
//	}})
//	…
//	err = m.Run(ctx)
//
// A target that fails from some moment on is Down at the latest Fall x Interval +
// Timeout later, whatever its state was: jitter only ever shortens an interval,
// Fast is none that is longer, and Down counts only while the probe is Down. Lag
// of the Monitor itself comes on top; see Stats.
//
// A Result may carry Advice, such as a weight, and a Warning. A Rule makes one
// state of those of several probes. Via says how the packets of a probe leave.
//
// TCP probes need Linux and no privilege; another network namespace needs
// CAP_SYS_ADMIN, which is up to Env.Enter.
package healthcheck
