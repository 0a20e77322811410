package ipvstest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lbd-project/lbd/ipvs"
)

// batchCases are about batches.
var batchCases = []testCase{
	{"empty batch", func(s *subject) {
		s.apply()
		s.holds()
	}},
	{"operations take effect in order", func(s *subject) {
		rr := web
		rr.Scheduler = "rr"
		a, b := server("10.0.0.1:80"), server("10.0.0.2:80")
		s.apply(addService(web), add(web, a), deleteService(web), addService(rr), add(rr, b),
			add(rr, a), remove(rr, b), add(rr, b), update(rr, server("10.0.0.1:80", weight(5))))
		s.holds(entry{rr, []ipvs.Destination{b, server("10.0.0.1:80", weight(5))}})
	}},
	{"failures in the middle", func(s *subject) {
		a, b, c := server("10.0.0.1:80"), server("10.0.0.2:80"), server("10.0.0.3:80")
		failed := s.fails(
			addService(web), // 0
			addService(web), // 1 exists
			add(web, a),     // 2
			add(absent, a),  // 3 no service
			update(web, b),  // 4 no real server
			add(web, b),     // 5
			add(web, b),     // 6 exists
			remove(web, c),  // 7 no real server
			add(web, server("10.0.0.3:80", thresholds(1, 2))), // 8 out of range
			add(web, c),           // 9
			deleteService(absent), // 10 no service
		)
		want := []struct {
			index int
			err   error
		}{
			{1, ipvs.ErrServiceExists},
			{3, ipvs.ErrServiceNotFound},
			{4, ipvs.ErrDestinationNotFound},
			{6, ipvs.ErrDestinationExists},
			{7, ipvs.ErrDestinationNotFound},
			{8, nil},
			{10, ipvs.ErrServiceNotFound},
		}
		if len(failed) != len(want) {
			s.Fatalf("want %d failures, got %+v", len(want), failed)
		}
		for i, w := range want {
			if failed[i].Index != w.index || w.err != nil && !errors.Is(failed[i].Err, w.err) {
				s.Errorf("failure %d: want %v of operation %d, got %v of operation %d",
					i, w.err, w.index, failed[i].Err, failed[i].Index)
			}
		}
		s.holds(entry{web, []ipvs.Destination{c, b, a}})
	}},
	{"a batch that fails wholly", func(s *subject) {
		failed := s.fails(deleteService(web), update(web, server("10.0.0.1:80")), remove(web, server("10.0.0.1:80")))
		var indices []int
		for _, f := range failed {
			indices = append(indices, f.Index)
		}
		if !slices.Equal(indices, []int{0, 1, 2}) {
			s.Errorf("failed operations: want 0, 1, 2, got %v", indices)
		}
		s.apply(addService(web)) // the next batch is not disturbed
		s.holds(entry{web, nil})
	}},
	{"3,000 operations", func(s *subject) {
		const services, each = 10, 299
		var want []entry
		var fill, edit []ipvs.Op
		for i := range services {
			sv := addrService(ipvs.TCP, fmt.Sprintf("192.0.2.%d:80", i+1))
			e := entry{Service: sv}
			fill = append(fill, addService(sv))
			for j := range each {
				d := server(fmt.Sprintf("10.%d.%d.%d:80", i, j/200, j%200+1))
				fill = append(fill, add(sv, d))
				d.Weight = uint32(j)
				edit = append(edit, update(sv, d))
				e.destinations = append(e.destinations, d)
			}
			slices.Reverse(e.destinations)
			want = append(want, e)
		}
		s.apply(fill...)
		// Failures far apart, in the first, middle and last place of what an
		// engine may send at once.
		var indices []int
		for _, at := range []int{0, 1, 499, 500, 999, 1000, 1001, 1999, 2000, 2500, len(edit)} {
			indices = append(indices, at)
			edit = slices.Insert(edit, at, deleteService(absent))
		}
		var got []int
		for _, f := range s.fails(edit...) {
			got = append(got, f.Index)
			if !errors.Is(f.Err, ipvs.ErrServiceNotFound) {
				s.Errorf("operation %d: %v", f.Index, f.Err)
			}
		}
		if !slices.Equal(indices, got) {
			s.Errorf("failed operations: want %v, got %v", indices, got)
		}
		s.holds(want...)
	}},
}
