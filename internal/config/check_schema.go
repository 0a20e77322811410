package config

import (
	"slices"

	"github.com/lbd-project/lbd/healthcheck/filecheck"
)

// The types of checks.
const (
	checkTCP   = "tcp"
	checkTLS   = "tls"
	checkHTTP  = "http"
	checkHTTPS = "https"
	checkUDP   = "udp"
	checkICMP  = "icmp"
	checkDNS   = "dns"
	checkSMTP  = "smtp"
	checkGRPC  = "grpc"
	checkExec  = "exec"
	checkFile  = "file"
)

// checkTypes are all of them.
var checkTypes = []string{checkTCP, checkTLS, checkHTTP, checkHTTPS, checkUDP, checkICMP, checkDNS, checkSMTP, checkGRPC, checkExec, checkFile}

// othersChecks has the names of checks in keepalived and HAProxy, and plain words that
// people try, with the types for them.
var othersChecks = map[string]string{
	"TCP_CHECK": checkTCP, "HTTP_GET": checkHTTP, "SSL_GET": checkHTTPS, "UDP_CHECK": checkUDP, "PING_CHECK": checkICMP,
	"DNS_CHECK": checkDNS, "SMTP_CHECK": checkSMTP, "MISC_CHECK": checkExec, "FILE_CHECK": checkFile,
	"tcp-check": checkTCP, "ssl-hello-chk": checkTLS, "httpchk": checkHTTP, "smtpchk": checkSMTP, "external-check": checkExec,
	"ping": checkICMP, "script": checkExec,
}

// What to do instead of a check that lbd has not.
const (
	useProgram  = "use exec with a program"
	useGreeting = "use tcp, or tls, with expect for its greeting, or exec with a program"
	useTalk     = "use tcp with send and expect, or exec with a program"
	useBFD      = "use icmp with a short interval, or exec with a program that asks the BFD daemon"
	useAgent    = "give the real server or the service the key agent, beside its check"
)

// lackingChecks has the names of checks in keepalived, HAProxy and ldirectord that
// lbd has no type for.
var lackingChecks = map[string]string{
	"BFD_CHECK": useBFD, "bfd": useBFD,
	"agent": useAgent, "agent-check": useAgent,
	"ftp": useGreeting, "imap": useGreeting, "nntp": useGreeting, "pop": useGreeting, "pop3": useGreeting,
	"ldap": useTalk, "ldap-check": useTalk, "redis": useTalk, "redis-check": useTalk,
	"sip": "use udp or tcp with send and expect, or exec with a program", "radius": useProgram, "oracle": useProgram,
	"mysql": useProgram, "mysql-check": useProgram, "pgsql": useProgram, "pgsql-check": useProgram, "postgres": useProgram,
	"spop": useProgram, "spop-check": useProgram,
}

// Groups of types that have keys in common.
var (
	networkChecks = slices.DeleteFunc(slices.Clone(checkTypes), func(t string) bool { return t == checkExec || t == checkFile })
	portChecks    = slices.DeleteFunc(slices.Clone(networkChecks), func(t string) bool { return t == checkICMP })
	webChecks     = []string{checkHTTP, checkHTTPS}
	streamChecks  = []string{checkTCP, checkTLS}
	tlsChecks     = []string{checkTLS, checkHTTPS, checkSMTP, checkGRPC}
)

// The words of to.
const (
	toServer  = "server"
	toService = "service"
)

// The words of close.
const (
	closeReset = "reset"
	closeFIN   = "fin"
)

// needsPort says whether checks of a type go to a port.
func needsPort(checkType string) bool { return slices.Contains(portChecks, checkType) }

// takesPort says whether checks of a type do different things for different ports of
// an address. A program does what it likes.
func takesPort(checkType string) bool { return checkType == checkExec || needsPort(checkType) }

// has says whether checks of a type have the key.
func (k *key) has(checkType string) bool {
	return k.types == nil || slices.Contains(k.types, checkType)
}

var tlsObject = newObject("tls", []key{
	{name: "server_name", kind: kindString, example: "www.example.com",
		doc: "Name that the certificate must be for; default is host where the check has one, else the address."},
	{name: "sni", kind: kindString, example: "www.example.com", off: true,
		doc: "Name that is asked for in the handshake; default is server_name unless that is an address, and empty asks for none."},
	{name: "verify", kind: kindBool, def: "true",
		doc: "Whether the certificate must be valid: with false any certificate does."},
	{name: "ca", kind: kindString, example: "/etc/lbd/ca.pem", off: true,
		doc: "File of the authorities that certificates may be of, in PEM; default is the host's. Files are read at the start and at each reload."},
	{name: "cert", kind: kindString, example: "/etc/lbd/client.pem", off: true,
		doc: "File of the certificate that the check shows, in PEM; with key."},
	{name: "key", kind: kindString, example: "/etc/lbd/client.key", off: true,
		doc: "File of the key of cert, in PEM."},
	{name: "min_version", kind: kindString, def: `"1.2"`, enum: []string{"1.0", "1.1", "1.2", "1.3"},
		doc: "Oldest version of TLS that will do."},
	{name: "alpn", kind: kindTexts, example: "[h2]", off: true,
		doc: "Protocols that are offered (ALPN); a check of HTTP or gRPC offers its own."},
	{name: "warn_before", kind: kindDuration, def: "168h", max: 10 * 366 * 24 * hour,
		doc: "How long before its end a certificate is warned of, in the log, status, list, explain and events, while the check passes; 0s for never."},
})

// bytesObject gives bytes in another way than as a text.
var bytesObject = newObject("a payload", []key{
	{name: "text", kind: kindRaw, example: "PING", doc: "As they are written."},
	{name: "hex", kind: kindRaw, example: "0d0a", off: true, doc: "As pairs of hexadecimal digits; spaces are ignored."},
})

// matchKeys say what an answer must be like.
var matchKeys = []key{
	{name: "text", kind: kindRaw, example: "PONG", doc: "It has this text."},
	{name: "hex", kind: kindRaw, example: "0dXX", off: true,
		doc: "It has these bytes, as pairs of hexadecimal digits, of which X stands for any."},
	{name: "regex", kind: kindRaw, example: "^PO.G", off: true,
		doc: "It matches this regular expression, of the syntax of RE2: there is no look-ahead nor look-behind."},
	{name: "at_start", kind: kindBool, def: "false", doc: "It begins with that; a regex says so itself, by ^."},
	{name: "not", kind: kindBool, def: "false", doc: "It must not."},
}

var matchObject = newObject("an expectation", matchKeys)

// textKeys are those of them that go with texts of HTTP.
var textKeys = slices.DeleteFunc(slices.Clone(matchKeys), func(k key) bool { return k.name == "hex" })

// bodyObject says what the body of an answer of HTTP must be like.
var bodyObject = newObject("an expectation of a body", textKeys, []key{
	{name: "min_offset", kind: kindInt, def: "0", max: 64 << 20,
		doc: "Bytes of the body before the first one at which the text or the match may begin. They are not looked at: at_start and ^ stand for the place after them."},
	{name: "max_offset", kind: kindInt, def: "0", max: 64 << 20,
		doc: "Offset in bytes at which it must begin at the latest, counted from the begin of the body; 0 for anywhere. At least min_offset."},
})

// headerObject says what a header of an answer of HTTP must be like.
var headerObject = newObject("an expectation of a header", textKeys)

var stepObject = newObject("a step", []key{
	{name: "send", kind: kindBytes, object: bytesObject, example: `"PING\r\n"`, doc: "What is sent."},
	{name: "expect", kind: kindBytes, object: matchObject, example: "PONG", doc: "What must come after it."},
})

// requestKeys are what a request of HTTP consists of.
var requestKeys = []key{
	{name: "path", kind: kindString, def: "/", types: webChecks,
		doc: "Path with the query that is asked for. Redirects are not followed."},
	{name: "status", kind: kindStatus, def: "200-299", types: webChecks,
		doc: "Status codes that are good: 200, 200-299, or a list of both."},
	{name: "expect_headers", kind: kindExpect, object: headerObject, example: `{Content-Type: text/html, X-State: {regex: "^ready$"}}`, off: true, types: webChecks,
		doc: "Headers that the answer must have, by name, each with what its value must have: a text, or a mapping with text or regex, and at_start or not. Of one that comes several times one value must have it; with not none may, and there need not be any."},
	{name: "match", kind: kindBytes, object: bodyObject, example: "ok", off: true, types: webChecks,
		doc: "What the body must have: a text, or a mapping with text or regex, at_start, not, min_offset and max_offset."},
	{name: "digest", kind: kindString, example: "sha256:e3b0…", off: true, types: webChecks,
		doc: "Digest of the body: md5: or sha256: with hexadecimal digits."},
}

var requestObject = newObject("a request", requestKeys)

var checkObject = newObject("a check", []key{
	{name: "type", kind: kindString, def: checkTCP, enum: checkTypes,
		others: othersChecks, lacks: lackingChecks,
		doc: "What is tried. tcp opens a connection, and with send, expect or steps talks over it; tls makes a handshake first. http and https ask for a page. udp sends a datagram. icmp is ping. dns asks for a name. smtp greets a mail server. grpc asks the standard health service. exec runs a program, file reads a weight."},
	{name: "interval", kind: kindDuration, def: "2s", min: millisecond, max: hour,
		doc: "Time between the starts of two checks."},
	{name: "fast_interval", kind: kindDuration, min: millisecond, max: hour, example: "500ms", off: true,
		doc: "The same while a real server is about to fail or to come back: from the first result that disagrees with its state. At most interval, which is the default."},
	{name: "down_interval", kind: kindDuration, min: millisecond, max: hour, example: "10s", off: true,
		doc: "The same while it is down; default is interval."},
	{name: "timeout", kind: kindDuration, def: "1s", min: millisecond, max: hour,
		doc: "Time after which a check has failed that is not through, whatever it is at. At most interval, fast_interval and down_interval: so checks of a real server never overlap, and one that stops answering is down within fall times interval plus timeout."},
	{name: "rise", kind: kindInt, def: "2", min: 1, max: 1000,
		doc: "Successful checks in a row that bring a failed real server back. The first result after the start decides alone, unless start says otherwise."},
	{name: "fall", kind: kindInt, def: "3", min: 1, max: 1000,
		doc: "Failed checks in a row that take a real server out."},
	{name: "start", kind: kindString, def: "pending", enum: []string{"pending", "up", "down"},
		doc: "What a real server is before its first result: pending counts as up, and the first result decides alone; up and down change as always. One that lbd knows, from before a restart or a reload, stays as it was until a result says otherwise: one is enough."},
	{name: "port", kind: kindInt, min: 1, max: 65535, example: "8080", off: true, types: append(slices.Clone(portChecks), checkExec),
		doc: "Port to check instead of the real server's; needed where the real server has port 0, but for exec."},
	{name: "address", kind: kindString, example: "10.0.0.9", off: true, types: append(slices.Clone(networkChecks), checkExec),
		doc: "Address to check instead of the real server's."},
	{name: "to", kind: kindString, def: toServer, enum: []string{toServer, toService}, types: portChecks,
		doc: "Whose address its packets are for. With service they go as those of clients do with forwarding route or tunnel, to the virtual service's address on this real server, so that one fails which lacks that address, or gets nothing through its tunnel. A real server that is this host is asked at its own address. Only with forwarding route, or tunnel of type ipip to a real server of the service's family, and not with fwmark. Not with address, interface, mark or netns, nor with the service's address as source; timeout is 1m at most; udp needs require_reply, expect or min_reply."},
	{name: "source", kind: kindString, example: "10.0.0.1", off: true, types: networkChecks,
		doc: "Address of this host that the check comes from."},
	{name: "interface", kind: kindString, example: "eth0", off: true, types: networkChecks,
		doc: "Interface that it leaves by."},
	{name: "mark", kind: kindBits, example: `"0x7"`, off: true, types: networkChecks,
		doc: "Mark of its packets, for rules and routes of this host."},
	{name: "netns", kind: kindString, example: "probes", off: true, types: append(slices.Clone(networkChecks), checkExec),
		doc: "Name or path of the network namespace that it comes from; default is that of the top level."},

	{name: "send", kind: kindBytes, object: bytesObject, example: `"PING\r\n"`, off: true, types: []string{checkTCP, checkTLS, checkUDP},
		doc: "What is sent: a text, {hex: 0d0a}, or nothing."},
	{name: "expect", kind: kindBytes, object: matchObject, example: "PONG", off: true, types: []string{checkTCP, checkTLS, checkUDP},
		doc: "What the answer must have: a text, or a mapping with text, hex or regex, and at_start or not. With udp it makes an answer necessary, unless require_reply is false."},
	{name: "steps", kind: kindList, object: stepObject, off: true, types: streamChecks,
		doc: "Several of send and expect, one after the other, instead of these keys."},
	{name: "close", kind: kindString, def: closeReset, enum: []string{closeReset, closeFIN}, types: []string{checkTCP},
		doc: "How the connection ends: by a reset, which leaves nothing behind, or fin for servers that complain of one: the check says goodbye, gives the server up to 200ms to do the same, and this host keeps the connection for a minute. With send, expect or steps it is always fin."},
	{name: "require_reply", kind: kindBool, example: "true", off: true, types: []string{checkUDP},
		doc: "Whether silence is a failure; default is true with expect or min_reply, else false. Otherwise only an ICMP error is one; of a host that is gone it comes after some 3 s, so that the timeout must be 4s."},
	{name: "min_reply", kind: kindInt, def: "0", max: 65535, types: []string{checkUDP}, doc: "Bytes that an answer must have at least; more than 0 makes one necessary, unless require_reply is false."},
	{name: "max_reply", kind: kindInt, def: "0", max: 65535, types: []string{checkUDP}, doc: "Bytes that it may have at most; 0 for any number."},
	{name: "host", kind: kindString, example: "www.example.com", off: true, types: webChecks,
		doc: "Value of the Host header; default is the address, with the port unless it is 80, or 443 with https."},
	{name: "method", kind: kindString, def: "GET", types: webChecks, doc: "Method of HTTP."},
	{name: "headers", kind: kindTable, example: "{User-Agent: lbd}", off: true, types: webChecks, doc: "Further headers by name."},
	{name: "body", kind: kindRaw, example: `"{}"`, off: true, types: webChecks, doc: "Body of the request."},
	{name: "version", kind: kindString, def: `"1.1"`, enum: []string{"1.0", "1.1", "2"}, types: webChecks,
		doc: "Version of HTTP. 2 without TLS is spoken from the first byte on."},
}, requestKeys, []key{
	{name: "requests", kind: kindList, object: requestObject, off: true, types: webChecks,
		doc: "Several requests, all of which must be answered well, instead of path, status, expect_headers, match and digest."},
	{name: "max_body", kind: kindInt, def: "1048576", min: 1, max: 64 << 20, types: webChecks,
		doc: "Bytes that the body of an answer may have: a longer one is a failure. With match that much is kept in memory for each check that runs."},
	{name: "tls", kind: kindObject, object: tlsObject, off: true, types: tlsChecks,
		doc: "Options of TLS. smtp and grpc speak TLS where it is given."},
	{name: "starttls", kind: kindBool, def: "false", types: []string{checkSMTP},
		doc: "Begins in plain text and changes to TLS by STARTTLS."},
	{name: "helo", kind: kindString, def: "lbd", types: []string{checkSMTP}, doc: "Name that it greets with."},
	{name: "size", kind: kindInt, def: "56", min: 16, max: 65507, types: []string{checkICMP}, doc: "Bytes of payload."},
	{name: "query", kind: kindString, def: ".", types: []string{checkDNS}, doc: "Name that is asked for."},
	{name: "record", kind: kindString, def: "SOA", types: []string{checkDNS},
		doc: "Type of record: A, AAAA, NS, CNAME, SOA, MX, TXT, SRV, PTR, CAA, or TYPE with a number."},
	{name: "rcode", kind: kindTexts, def: "NOERROR", types: []string{checkDNS}, doc: "Codes that are good, such as NXDOMAIN."},
	{name: "answers", kind: kindTexts, example: "[192.0.2.1]", off: true, types: []string{checkDNS},
		doc: "Records that the answer must have, as their data is written in zone files."},
	{name: "exact", kind: kindBool, def: "false", types: []string{checkDNS}, doc: "Whether it may have no others of this type."},
	{name: "transport", kind: kindString, def: "udp", enum: []string{"udp", "tcp"}, types: []string{checkDNS},
		doc: "udp, which goes on with tcp where the answer is truncated, or tcp."},
	{name: "recursion", kind: kindBool, def: "true", types: []string{checkDNS}, doc: "Whether recursion is desired."},
	{name: "service", kind: kindString, example: "shop.v1.Cart", off: true, types: []string{checkGRPC},
		doc: "Service whose health is asked for; default is that of the whole server."},
	{name: "authority", kind: kindString, example: "shop.example.com", off: true, types: []string{checkGRPC},
		doc: "Value of :authority; default is the address with the port."},
	{name: "command", kind: kindArgs, example: "[/usr/lib/lbd/check-db, --quick]", off: true, types: []string{checkExec},
		doc: "Absolute path of the program and its arguments. There is no shell. Status 0 is good, others are not. Its process group gets SIGKILL at the timeout, and SIGTERM a tenth of the timeout before, 250 ms at most; what it leaves running there is killed when it ends, too. It gets LBD_ADDRESS, LBD_PORT (0 where the real server has port 0), LBD_TARGET (both of them) and LBD_CHECK_TIMEOUT, the seconds until SIGTERM. status and doctor warn of a program that others than root and user can change."},
	{name: "user", kind: kindString, example: "nobody", off: true, types: []string{checkExec}, doc: "User that it runs as; default is lbd's own."},
	{name: "group", kind: kindString, example: "nogroup", off: true, types: []string{checkExec}, doc: "Group that it runs as; default is the user's."},
	{name: "env", kind: kindTable, example: "{LANG: C}", off: true, types: []string{checkExec}, doc: "Its environment, beside PATH, LANG=C and what begins with LBD_."},
	{name: "dynamic", kind: kindBool, def: "false", types: []string{checkExec},
		doc: "A status from 2 to 255 is good, too, and sets the weight to the status less 2."},
	{name: "file", kind: kindString, example: "/run/app/weight", off: true, types: []string{checkFile},
		doc: `File with a number: the weight, with % a share of the configured one, or with multiplier what is added to it. It fails while the file is absent or has anything else.`},
	{name: "multiplier", kind: kindInt, def: "0", min: -filecheck.MaxMultiplier, max: filecheck.MaxMultiplier, types: []string{checkFile},
		doc: "Makes the number in the file a change of the weight: times this it is added, down to 0 and up to 65535. Both may be negative; a weight of 0 stays 0, and -2147483648 or less is a failure. 0 is for a file with the weight itself."},
	{name: "any", kind: kindChecks, off: true, example: "[web-ok, admin-ok]", doc: "Instead of all others: checks, by name or in place, of which one must pass. Such groups stand in each other at most 3 deep, and have at most 100 checks."},
	{name: "all", kind: kindChecks, off: true, example: "[web-ok, disk-ok]", doc: "Instead of all others: checks, by name or in place, that must all pass."},
})
