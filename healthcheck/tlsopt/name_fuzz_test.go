package tlsopt

import (
	"net/http"
	"testing"
)

// FuzzNameOf has no host that breaks a request.
func FuzzNameOf(f *testing.F) {
	for _, s := range []string{"a.example", "a.example:80", "[::1]:80", "[::1", "a\r\nb", ":80", "[fe80::1%25eth0]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, err := NameOf(host)
		if err != nil {
			return
		}
		r, err := http.NewRequest("GET", "http://"+host+"/", nil)
		if err != nil || r.Host != host || r.URL.Hostname() != name {
			t.Fatalf("%q has the name %q, as a URL %+v, %v", host, name, r, err)
		}
	})
}
