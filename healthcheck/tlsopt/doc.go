// Package tlsopt is TLS as probes use it: options, their canonical key, and errors
// that a person understands.
//
// Verification is on unless switched off. Nothing of one handshake is used in the
// next: each probe verifies the whole certificate again.
//
//	o := &tlsopt.Options{ServerName: "www.example.com", WarnBefore: 14 * 24 * time.Hour}
//	config, err := o.Config("10.0.0.2")
//	…
//	conn, err := tlsopt.Client(ctx, tcp, config)
//	…
//	defer conn.Close() // close_notify, then FIN
//	warning := o.Warning(conn.ConnectionState(), time.Now())
package tlsopt
