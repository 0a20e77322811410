package main

import (
	"fmt"
	"strings"

	"github.com/lbd-project/lbd/internal/bench/rig"
)

// servers is the number of real servers.
const servers = 3

const limitTable = "turns"

// limitRules are the least that balances by the kernel's NAT: one rule, each
// real server in turn.
func limitRules() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat;\n", limitTable)
	fmt.Fprintf(&b, "\t\tip daddr %v dnat to numgen inc mod %d map {", rig.VIP(), servers)
	for i := range servers {
		fmt.Fprintf(&b, " %d : %v,", i, rig.Server(i))
	}
	b.WriteString(" }\n\t}\n}\n")
	return b.String()
}

// haproxyConfig has two threads, as many as the machine has processors that the
// figures are known of. Splicing is what its manual advises for bulk traffic,
// tcp-smart-accept and tcp-smart-connect save packets.
func haproxyConfig(string) string {
	var b strings.Builder
	b.WriteString(`global
	nbthread 2
	maxconn 4096
	log stdout format raw local0
defaults
	mode tcp
	log global
	option tcplog
	option dontlog-normal
	balance leastconn
	option splice-auto
	option tcp-smart-accept
	option tcp-smart-connect
	timeout connect 10s
	timeout client 60s
	timeout server 60s
`)
	for _, port := range rig.Ports() {
		fmt.Fprintf(&b, "listen s%d\n\tbind %v\n", port, vip(port))
		for i := range servers {
			fmt.Fprintf(&b, "\tserver %s %v:%d\n", rig.Name(i), rig.Server(i), port)
		}
	}
	return b.String()
}

// nginxConfig has two workers, which share what they know of the real servers.
func nginxConfig(dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
user root;
worker_processes 2;
worker_rlimit_nofile 32768;
pid %s/nginx.pid;
error_log stderr;
events {
	worker_connections 8192;
	multi_accept on;
}
stream {
`, dir)
	for _, port := range rig.Ports() {
		fmt.Fprintf(&b, "\tupstream s%d {\n\t\tzone s%d 64k;\n\t\tleast_conn;\n", port, port)
		for i := range servers {
			fmt.Fprintf(&b, "\t\tserver %v:%d;\n", rig.Server(i), port)
		}
		fmt.Fprintf(&b, "\t}\n\tserver {\n\t\tlisten %v reuseport backlog=4096;\n\t\tproxy_pass s%d;\n\t}\n", vip(port), port)
	}
	b.WriteString("}\n")
	return b.String()
}
