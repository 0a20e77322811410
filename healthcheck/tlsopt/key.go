package tlsopt

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// Key returns a text with every option, empty for a nil *Options: options
// with equal texts make the same handshakes. Of certificates and keys it has the
// SHA-256.
func (o *Options) Key() string {
	if o == nil {
		return ""
	}
	o.keyOnce.Do(func() { o.key = o.canonical() })
	return o.key
}

func (o *Options) canonical() string {
	var b strings.Builder
	b.WriteString("tls")
	quoted := func(name, value string) {
		if value != "" {
			b.WriteString(" " + name + "=" + strconv.Quote(value))
		}
	}
	flag := func(name string, set bool) {
		if set {
			b.WriteString(" " + name)
		}
	}
	digest := func(name string, content []byte) {
		if len(content) > 0 {
			fmt.Fprintf(&b, " %s=%x", name, sha256.Sum256(content))
		}
	}
	quoted("name", o.ServerName)
	quoted("sni", o.SNI)
	flag("no-sni", o.NoSNI)
	flag("skip-verify", o.SkipVerify)
	digest("ca", o.CA)
	digest("cert", o.ClientCert)
	digest("key", o.ClientKey)
	fmt.Fprintf(&b, " min=%#04x", cmp.Or(o.MinVersion, defaultMinVersion))
	for _, p := range o.ALPN {
		quoted("alpn", p)
	}
	if o.WarnBefore != 0 {
		fmt.Fprintf(&b, " warn=%v", o.WarnBefore)
	}
	return b.String()
}
