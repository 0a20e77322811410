// Package smtpcheck probes mail servers (SMTP, RFC 5321): it greets and takes its
// leave, so that the server has nothing to complain about in its log.
//
//	m := smtpcheck.Check{Name: "balancer.example.com"}
//
// It sends no mail and does not log in.
package smtpcheck
