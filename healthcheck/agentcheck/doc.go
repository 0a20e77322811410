// Package agentcheck asks an agent that speaks for a real server, as HAProxy's
// agent-check does.
//
// The probe connects, sends what it has been told to send, if anything, and reads
// one line, which ends with LF, CR LF or the end of the connection. The line has
// words in any order, in upper or lower case, with spaces, tabs or commas between
// them. Each may be left out, and leaves what the agent said before:
//
//	up                     the server works
//	down, fail, stopped    it does not; failed is taken for fail
//	ready                  it takes part
//	drain                  it gets no new connections
//	maint                  it is out of service, and its connections may end
//	50%, weight:50%        the weight, as a part of the configured one, 0% to 65535%
//	weight:20              the weight, 0 to 65535
//	maxconn:100            ignored: the thresholds of a server are the configuration's
//	# reason               the agent's reason, up to the end of the line
//
// Where words contradict each other, the last one of the line holds. Words that
// are none of these are ignored. The result's Detail names what is ignored. There
// must be one that is known.
//
// No connection, no answer in time, an empty one, one that is no agent's and one
// of more than 1024 bytes are errors. Probe.Advisory has them say nothing of the
// server: the agent's last words go on to hold. What its words mean for the
// weight, beside health checks and operators, is not up to this package.
//
// The package needs Linux; a mark and other network namespaces need privileges,
// see healthcheck.Via.
package agentcheck
