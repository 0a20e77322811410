package config

import (
	"crypto/tls"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// tlsVersions are the versions by their words.
var tlsVersions = map[string]uint16{
	"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13,
}

// tls returns the options of TLS: those of the file, or the defaults.
func (o *options) tls() *tlsopt.Options { return o.p.tls(tlsObject, o.given["tls"]) }

// tls reads the options of TLS that object has; n is nil for the defaults.
func (p *parser) tls(object *object, n *node) *tlsopt.Options {
	t := &tlsopt.Options{}
	set := func(k *key, v *node) {
		switch k.name {
		case "server_name":
			t.ServerName, _ = p.text(k, v)
		case "sni":
			s, ok := p.text(k, v)
			t.SNI, t.NoSNI = s, ok && s == ""
		case "verify":
			verify, ok := p.boolean(k, v)
			t.SkipVerify = ok && !verify
		case "ca":
			t.CA = p.readFile(k, v)
		case "cert":
			t.ClientCert = p.readFile(k, v)
		case "key":
			t.ClientKey = p.readFile(k, v)
		case "min_version":
			s, _ := p.word(k, v)
			t.MinVersion = tlsVersions[s]
		case "alpn":
			t.ALPN = p.texts(k, v)
		case "warn_before":
			t.WarnBefore, _ = p.duration(k, v)
		default:
			panic(unhandled(k))
		}
	}
	defaults(object, set)
	if n == nil {
		return t
	}
	before := len(p.errs)
	if p.object(n, object, set) && len(p.errs) == before {
		if err := t.Validate(); err != nil {
			p.errorf(n, "tls: %v", err)
		}
	}
	return t
}

// tlsIfGiven returns the options where the file has some, else nil.
func (o *options) tlsIfGiven() *tlsopt.Options {
	if o.given["tls"] == nil {
		return nil
	}
	return o.tls()
}
