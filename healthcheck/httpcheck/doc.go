// Package httpcheck checks real servers by HTTP/1.0, 1.1 or 2, with and without
// TLS.
//
// A server is healthy when each request gets a status that it may have and, where
// they are asked for, a body with the digest and with a match of the regular
// expression. Redirects are answers like others and never followed. Every request
// has a connection of its own.
//
//	c := httpcheck.Check{
//		Host:     "www.example.com",
//		Requests: []httpcheck.Request{{Path: "/healthz", Match: regexp.MustCompile("ready")}},
//	}
//	checker, err := c.NewChecker(netip.MustParseAddrPort("10.0.0.2:80"), healthcheck.Env{})
//
// HTTP/1.x is written here and read by http.ReadResponse: http.Transport sends no
// HTTP/1.0, has goroutines for each connection, and closes before the server does,
// which leaves this host with every probe in TIME_WAIT. HTTP/2 is that of
// net/http, on a single connection; there this host closes first.
package httpcheck
