package conntrack

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fill makes n entries with mark 0x100 in the balancer's table, without any
// packet.
func (l *lab) fill(n int) {
	l.t.Helper()
	var b strings.Builder
	for i := range n {
		client := fmt.Sprintf("198.51.%d.%d", i>>8&0xff, i&0xff)
		fmt.Fprintf(&b, "-I -p tcp -s %s -d %s --sport %d --dport 80", client, vip4, 1024+i>>16)
		fmt.Fprintf(&b, " -r %s -q %s --reply-port-src 8080 --reply-port-dst %d", server4, client, 1024+i>>16)
		b.WriteString(" -t 600 --state ESTABLISHED -u ASSURED,SEEN_REPLY -m 256\n")
	}
	cmd := exec.Command("conntrack", "-R", "-")
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := l.lb.Run(cmd); err != nil {
		l.t.Fatalf("conntrack -R: %v\n%s", err, out)
	}
}

// BenchmarkNetnsDump measures a dump of 50,000 entries, an entry.
func BenchmarkNetnsDump(b *testing.B) {
	l := newLab(b)
	tab := l.table()
	const entries = 50_000
	l.fill(entries)
	b.ReportAllocs()
	var n int
	start := time.Now()
	for b.Loop() {
		n = 0
		if err := tab.Dump(b.Context(), Filter{Mark: 0x100, MarkMask: 0xfffff00}, func(*Event) { n++ }); err != nil {
			b.Fatal(err)
		}
		if n != entries {
			b.Fatalf("want %d entries, got %d", entries, n)
		}
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N)/entries, "ns/entry")
}

// BenchmarkNetnsRequests measures, for servers with known delays, how far the
// difference of two events is from it: by the kernel's time of the event (at),
// by the time that it was read at once (read), and in ticks of 5 ms (tick).
func BenchmarkNetnsRequests(b *testing.B) {
	for _, wait := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(wait.String(), func(b *testing.B) {
			l := newLab(b)
			waits := make(chan time.Duration, 1)
			l.serve(waits)
			l.rules(signalRules("prerouting priority -139"))
			l.lb.SetSysctl("net.netfilter.nf_conntrack_timestamp", "1")
			e := l.events(EventConfig{})
			c := l.plain("tcp")
			in := bufio.NewReader(c)
			var at, read, tick []float64
			for b.Loop() {
				c.SetDeadline(time.Now().Add(patience))
				fmt.Fprintf(c, "wait %v;send done\n", wait)
				var times [2]time.Time
				var events [2]Event
				for n := 0; n < 2; {
					unix.Poll([]unix.PollFd{{Fd: int32(e.FD()), Events: unix.POLLIN}}, 1000)
					now := time.Now()
					if _, err := e.Drain(func(ev *Event) {
						if n < 2 {
							events[n], times[n] = *ev, now
							n++
						}
					}); err != nil {
						b.Fatal(err)
					}
				}
				in.ReadString('\n')
				inner := <-waits
				const step = 5 * time.Millisecond
				ticks := times[1].Truncate(step).Sub(times[0].Truncate(step))
				at = append(at, float64(events[1].At-events[0].At-int64(inner))/1e6)
				read = append(read, float64(times[1].Sub(times[0])-inner)/1e6)
				tick = append(tick, float64(ticks-inner)/1e6)
			}
			report := func(name string, errors []float64) {
				slices.Sort(errors)
				for _, p := range []int{1, 50, 99} {
					b.ReportMetric(errors[(len(errors)-1)*p/100], fmt.Sprintf("ms-%s-p%d", name, p))
				}
			}
			report("at", at)
			report("read", read)
			report("tick", tick)
		})
	}
}

// BenchmarkNetnsRequestCost measures small requests on 8 kept connections, an
// operation each, without signals and with them, their events read in ticks of
// 5 ms. The processor time is the client's, the balancer's and the server's.
func BenchmarkNetnsRequestCost(b *testing.B) {
	for name, rules := range map[string]string{
		"off": ruleset(markThenEvents), "on": signalRules("prerouting priority -139"),
	} {
		b.Run(name, func(b *testing.B) {
			l := newLab(b)
			l.echo()
			l.rules(rules)
			e := l.events(EventConfig{})
			const conns = 8
			var clients, reader sync.WaitGroup
			stop := make(chan bool)
			reader.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
					for {
						n, err := e.Drain(func(*Event) {})
						if err != nil {
							b.Error(err)
						}
						if n < DrainLimit {
							break
						}
					}
				}
			})
			before := processorTime(b)
			for range conns {
				c := l.plain("tcp")
				c.SetDeadline(time.Now().Add(time.Minute))
				clients.Go(func() {
					buf := make([]byte, 100)
					for range b.N/conns + 1 {
						c.Write(buf)
						if _, err := io.ReadFull(c, buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			clients.Wait()
			close(stop)
			reader.Wait()
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(e.Stats().Events)/float64(b.N), "events/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
