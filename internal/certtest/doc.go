// Package certtest makes certificate authorities and certificates for tests.
//
//	ca := certtest.New(t)
//	server := ca.Issue(t, certtest.Spec{Names: []string{"example.test", "127.0.0.1"}})
//	config := &tls.Config{Certificates: []tls.Certificate{server.TLS}}
//
// The package is for tests, never for lbd.
package certtest
