package memory

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/ipvs"
)

// TestAppendHealth writes by hand what encoding/json reads as the same, whatever
// zones are called, and the same text each time.
func TestAppendHealth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		health := make(map[ipvs.DestinationKey]bool)
		downFor := make(map[ipvs.DestinationKey]time.Duration)
		want := make(map[string]map[string]healthJSON)
		for range rapid.IntRange(0, 20).Draw(t, "servers") {
			k := ipvs.DestinationKey{
				Service: rapid.SampledFrom([]ipvs.ServiceKey{
					tcp("192.0.2.10:80"), tcp("[2001:db8::10]:80"), ipvs.MarkService(ipvs.IPv4, 7), ipvs.MarkService(ipvs.IPv6, 7),
				}).Draw(t, "service"),
				Address: netip.AddrPortFrom(rapid.SampledFrom([]netip.Addr{
					netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("2001:db8::1"),
					netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fe80::1").WithZone(rapid.String().Draw(t, "zone")),
				}).Draw(t, "address"), rapid.Uint16().Draw(t, "port")),
			}
			h := healthJSON{Down: rapid.Bool().Draw(t, "down")}
			if h.Down {
				h.ForMS = rapid.Int64Range(0, 1e9).Draw(t, "for")
				downFor[k] = time.Duration(h.ForMS) * time.Millisecond
			} else {
				delete(downFor, k)
			}
			health[k] = h.Down
			if want[k.Service.String()] == nil {
				want[k.Service.String()] = make(map[string]healthJSON)
			}
			want[k.Service.String()][k.Address.String()] = h
		}
		text := appendHealth(nil, health, downFor)
		// By way of encoding/json, since that replaces what is no UTF-8.
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		clear(want)
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		var got map[string]map[string]healthJSON
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if again := appendHealth(nil, health, downFor); string(again) != string(text) {
			t.Fatalf("another time:\n%s\n%s", text, again)
		}
	})
}
