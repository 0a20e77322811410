package config

import (
	"maps"
	"strings"
)

// othersKeys has keys of keepalived and HAProxy that lbd calls otherwise: for each
// object its key for them, a key of a mapping of it as in tls.sni, or one with its
// value. HAProxy's are written with _ for -.
var othersKeys = map[*object]map[string]string{
	topObject: {
		"virtual_server": "virtual_services", "listen": "virtual_services",
	},
	serviceObject:  join(serviceWords, serverWords, map[string]string{"bind": "address", "ip_family": "family", "server": "real_servers", "sorry_server": "backup"}),
	defaultsObject: join(serviceWords, serverWords),
	serverObject:   serverWords,
	quorumObject: {
		"quorum": "up", "quorum_up": "on_up", "quorum_down": "on_down",
	},
	persistenceObject: {
		"persistence_timeout": "timeout", "persistence_granularity": "netmask", "persistence_engine": "engine",
	},
	checkObject: join(requestWords, map[string]string{
		"delay_loop": "interval", "retry": "fall", "nb_get_retry": "fall", "delay_before_retry": "fast_interval",
		"connect_timeout": "timeout", "misc_timeout": "timeout",
		"connect_ip": "address", "connect_port": "port", "bindto": "source", "bind_if": "interface", "fwmark": "mark",
		"misc_path": "command", "misc_dynamic": "dynamic", "track_file": "file", "helo_name": "helo",
		"virtualhost": "host", "http_protocol": "version", "enable_sni": "tls.sni",
		"payload": "send", "min_reply_length": "min_reply", "max_reply_length": "max_reply",
		"inter": "interval", "fastinter": "fast_interval", "downinter": "down_interval", "addr": "address",
		"meth": "method", "ver": "version", "hdr": "headers", "url": "requests",
		"sni": "tls.sni", "check_sni": "tls.sni", "alpn": "tls.alpn", "check_alpn": "tls.alpn",
		"verify": "tls.verify", "verifyhost": "tls.server_name", "ca_file": "tls.ca", "crt": "tls.cert", "ssl_min_ver": "tls.min_version",
	}),
	requestObject: join(requestWords, map[string]string{"url": "path"}),
	tlsObject: {
		"check_sni": "sni", "check_alpn": "alpn", "verifyhost": "server_name", "ca_file": "ca", "crt": "cert", "ssl_min_ver": "min_version",
	},
	agentObject: {
		"agent_port": "port", "agent_addr": "address", "agent_inter": "interval", "agent_send": "send", "addr": "address", "inter": "interval",
	},
}

// serverWords are those of what a real server has, and a service for all of them.
var serverWords = map[string]string{
	"lb_kind": "forwarding", "lvs_method": "forwarding",
	"uthreshold": "upper_threshold", "lthreshold": "lower_threshold", "maxconn": "upper_threshold",
	"inhibit_on_failure": "on_failure: quiesce", "on_marked_down": "on_failure", "alpha": "check.start: down",
	"delay_loop": "check.interval", "retry": "check.fall", "delay_before_retry": "check.fast_interval",
	"connect_timeout": "check.timeout", "connect_ip": "check.address", "connect_port": "check.port", "bindto": "check.source", "virtualhost": "check.host",
	"inter": "check.interval", "fastinter": "check.fast_interval", "downinter": "check.down_interval", "rise": "check.rise", "fall": "check.fall",
	"sni": "check.tls.sni", "check_sni": "check.tls.sni", "verify": "check.tls.verify",
	"agent_check": "agent", "agent_port": "agent.port", "agent_addr": "agent.address", "agent_inter": "agent.interval", "agent_send": "agent.send",
}

// serviceWords are those of what a service alone has.
var serviceWords = map[string]string{
	"lb_algo": "scheduler", "lvs_sched": "scheduler", "balance": "scheduler", "ops": "one_packet",
	"persistence_timeout": "persistence.timeout", "persistence_granularity": "persistence.netmask", "persistence_engine": "persistence.engine",
	"hysteresis": "quorum.hysteresis", "quorum_up": "quorum.on_up", "quorum_down": "quorum.on_down",
	"slowstart": "slow_start", "observe": "passive", "error_limit": "passive.failures",
}

// requestWords are those of what a check of HTTP and a request of it have.
var requestWords = map[string]string{
	"uri": "path", "status_code": "status", "rstatus": "status", "rstring": "match.regex",
	"regex": "match.regex", "regex_no_match": "match.not", "regex_min_offset": "match.min_offset", "regex_max_offset": "match.max_offset",
}

func join(tables ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// ours returns what o calls a key of keepalived or HAProxy; empty for nothing.
func (o *object) ours(name string) string {
	return othersKeys[o][strings.ReplaceAll(name, "-", "_")]
}
