package config

import (
	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/dnscheck"
	"github.com/lbd-project/lbd/healthcheck/execcheck"
	"github.com/lbd-project/lbd/healthcheck/filecheck"
	"github.com/lbd-project/lbd/healthcheck/icmpcheck"
	"github.com/lbd-project/lbd/healthcheck/smtpcheck"
)

func (o *options) icmp(via healthcheck.Via) healthcheck.Method {
	return icmpcheck.Check{Via: via, Size: o.integer("size")}
}

func (o *options) smtp(via healthcheck.Via) healthcheck.Method {
	c := smtpcheck.Check{Via: via, TLS: o.tlsIfGiven(), StartTLS: o.boolean("starttls"), Name: o.text("helo")}
	if c.StartTLS && c.TLS == nil {
		c.TLS = o.tls()
	}
	return c
}

func (o *options) dns(via healthcheck.Via) healthcheck.Method {
	c := dnscheck.Check{
		Via: via, Transport: o.word("transport"), Name: o.text("query"), NoRecursion: !o.boolean("recursion"),
		Answers: o.texts("answers"), Exact: o.boolean("exact"),
	}
	k, v := o.key("record")
	if s, ok := o.p.text(k, v); ok {
		var err error
		if c.Type, err = dnscheck.ParseType(s); err != nil {
			o.p.errorf(orNode(v, o.at), "record: %v", err)
		}
	}
	for _, s := range o.texts("rcode") {
		code, err := dnscheck.ParseRcode(s)
		if err != nil {
			o.p.errorf(orNode(o.given["rcode"], o.at), "rcode: %v", err)
		}
		c.Rcodes = append(c.Rcodes, code)
	}
	return c
}

func (o *options) exec(via healthcheck.Via) healthcheck.Method {
	c := execcheck.Check{
		Args: o.arguments("command"), User: o.text("user"), Group: o.text("group"),
		Dynamic: o.boolean("dynamic"), NetNS: via.NetNS,
	}
	if env := o.table("env"); len(env) > 0 {
		c.Env = make(map[string]string, len(env))
		for _, e := range env {
			c.Env[e[0]] = e[1]
		}
	}
	return c
}

func (o *options) weightFile() healthcheck.Method {
	if o.given["file"] == nil {
		o.p.errorf(o.at, "a check of type %s needs file", o.kind)
	}
	return filecheck.Check{Path: o.path("file"), Multiplier: o.integer("multiplier")}
}
