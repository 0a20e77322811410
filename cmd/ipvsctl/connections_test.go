package main

import (
	"bufio"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
)

// Connections that come together are aligned together, however long lbd took to
// answer, and those that come slowly are printed meanwhile.
func TestConnectionsAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o, e strings.Builder
		a := newApp(strings.NewReader(""), &o, &e)
		err := a.printConnections(bufio.NewWriter(a.out), func(yield func(api.Connection, error) bool) {
			row := func(client string) { yield(api.Connection{Protocol: "TCP", Client: client}, nil) }
			time.Sleep(time.Minute)
			row("192.0.2.1:1")
			row("198.51.100.100:40000")
			if o.Len() > 0 {
				t.Errorf("printed before the last of those that came together:\n%s", &o)
			}
			time.Sleep(time.Minute)
			row("192.0.2.1:2")
			if !strings.Contains(o.String(), "192.0.2.1:2") {
				t.Errorf("a connection that came late waits for the next:\n%s", &o)
			}
		})
		want := "PROTO  CLIENT                VIRTUAL  REAL SERVER  STATE  EXPIRES  SERVICE\n" +
			"TCP    192.0.2.1:1                                             0s  -\n" +
			"TCP    198.51.100.100:40000                                    0s  -\n" +
			"TCP    192.0.2.1:2                                             0s  -\n"
		if diff := cmp.Diff(want, o.String()); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
