package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/certtest"
)

// forms are values as people write them, in flow style: every kind of scalar with
// and without quotes, numbers and times in all their spellings, and what holds
// others. Words and examples of the keys come on top.
var forms = []string{
	`5`, `"5"`, `64`, `"64"`, `100`, `220`, `4096`, `0x7`, `"0x7"`, `0xF0`, `-5`, `0`, `"0"`, `0o7`, `007`, `1_000`, `1e3`, `1.1`, `"1.1"`, `.5`,
	`0x0fffff00`, `"0x0FFFFF00"`, `"0x00000000f0000000"`, `268435200`,
	`true`, `"true"`, `false`, `yes`, `NO`, `~`, `null`, `""`, `abc`, `"abc"`, `Abc.d-e`, `2024-01-01`,
	`5s`, `"5s"`, `+5s`, `1.5s`, `5.s`, `.5m`, `5m`, `1h2m3s`, `1s500ms`, `5000000µs`, `5000000μs`, `5000000us`, `5000000000ns`, `0s`, `-0s`, `+0m`, `168h`,
	`2xx`, `3XX`, `"2xx"`, `200-299`, `"200 - 299"`, `"200,404"`, `" 2xx , 301-308 "`, `[200, 3xx, "404", 500-599]`, `["2Xx,404"]`, `[]`,
	`/abc`, `"/abc"`, `10.0.0.1`, `"10.0.0.1:80"`, `"192.0.2.9:443"`, `"[2001:db8::1]:80"`, `"2001:db8::1"`, `255.255.255.0`, `255.0.255.0`,
	`https://example.com/hook`, `"sha256:` + strings.Repeat("ab", 32) + `"`, `"MD5:` + strings.Repeat("AB", 16) + `"`,
	`[{path: /x, status: 2xx}, {}]`, `{}`, `[5]`, `[abc]`, `[abc, "5"]`, `["/abc", 5, true, 1.5]`, `["/abc", "x"]`, `[NXDOMAIN, 3]`, `["3"]`, `{a: b}`, `{A-b: 5, C: true, D: 1.5, e: "f"}`, `{"5": a}`, `{5: a}`,
	`{text: abc}`, `{text: 5}`, `{text: true}`, `{text: 1.5, not: true}`, `{hex: 00}`, `{hex: 0102}`, `{hex: "0d 0A"}`, `{hex: XX, not: false}`, `{regex: 5}`, `{regex: "^a"}`,
	`[{send: 5, expect: 220}]`, `[{send: {hex: 5050}}, {expect: {text: 5}}]`,
	`known`, `80`, `"80"`, `[known]`, `[known, 80]`, `[{}, known]`, `[{type: icmp}, 80]`, `{any: [known, 80]}`,
}

// places are where a key of an object stands in a file; %s is the key with a value,
// of which one of the places must take some.
func places(t *testing.T, o *object, k *key) []string {
	const rest = "\nvirtual_services: []"
	services := func(service string) string {
		return "checks: {known: {}, 80: {}}\nvirtual_services: [{" + service + "}]"
	}
	const web, server = `address: "192.0.2.1:80", `, `real_servers: [{address: 10.0.0.1, check: known}], `
	// What the keys of services and real servers need beside them.
	beside := map[string]string{
		"tunnel": "forwarding: tunnel, ", "lower_threshold": "upper_threshold: 9999, ",
		"one_packet": "protocol: udp, scheduler: rr, ",
	}[k.name]
	switch o {
	case topObject:
		if k.name == "virtual_services" {
			return []string{"%s"}
		}
		return []string{"%s" + rest}
	case socketObject:
		return []string{"socket: {%s}" + rest}
	case timeoutsObject:
		return []string{"timeouts: {%s}" + rest}
	case sysctlObject:
		return []string{"sysctls: {%s}" + rest}
	case userspaceObject:
		return []string{"userspace: {%s}" + rest}
	case notifyObject:
		return []string{"notify: {%s}" + rest}
	case execHookObject:
		if k.required {
			return []string{"notify: {exec: [{%s}]}" + rest}
		}
		return []string{"notify: {exec: [{command: [/x], user: root, %s}]}" + rest, "notify: {exec: [{command: [/x], %s}]}" + rest}
	case webhookObject:
		if k.required {
			return []string{"notify: {webhook: [{%s}]}" + rest}
		}
		return []string{`notify: {webhook: [{url: "https://example.com", %s}]}` + rest}
	case hookTLSObject:
		return []string{`notify: {webhook: [{url: "https://example.com", tls: {%s}}]}` + rest}
	case checkObject:
		if k.types == nil {
			return []string{"checks: {c: {%s}, known: {}, 80: {}}" + rest}
		}
		with := map[string]string{
			"group": "command: [/x], user: root, ", "exact": "answers: [192.0.2.1], record: A, ", "starttls": "tls: {}, ", "multiplier": "file: /x, ",
		}[k.name]
		if k.types[0] == checkExec && with == "" && k.name != "command" {
			with = "command: [/x], "
		}
		return []string{"checks: {c: {type: " + k.types[0] + ", " + with + "%s}}" + rest}
	case tlsObject:
		return []string{"checks: {c: {type: tls, tls: {%s}}}" + rest}
	case bytesObject:
		return []string{"checks: {c: {send: {%s}}}" + rest}
	case matchObject:
		return []string{"checks: {c: {expect: {%s}}}" + rest, "checks: {c: {expect: {text: a, %s}}}" + rest}
	case bodyObject:
		return []string{"checks: {c: {type: http, match: {%s}}}" + rest, "checks: {c: {type: http, match: {text: a, %s}}}" + rest}
	case headerObject:
		return []string{"checks: {c: {type: http, expect_headers: {A: {%s}}}}" + rest, "checks: {c: {type: http, expect_headers: {A: {text: a, %s}}}}" + rest}
	case stepObject:
		return []string{"checks: {c: {steps: [{%s}]}}" + rest}
	case requestObject:
		return []string{"checks: {c: {type: http, requests: [{%s}]}}" + rest}
	case agentObject:
		if k.required {
			return []string{services(web + "agent: {%s}, " + server)}
		}
		return []string{services(web + "agent: {port: 1, %s}, " + server)}
	case tunnelObject:
		return []string{
			services(web + "forwarding: tunnel, tunnel: {%s}, " + server),
			services(web + "forwarding: tunnel, tunnel: {type: gue, port: 6080, %s}, " + server),
		}
	case persistenceObject:
		return []string{services(web + "protocol: udp, persistence: {%s}, " + server), services(`address: "[2001:db8::1]:80", persistence: {%s}`)}
	case quorumObject:
		return []string{services(web + "quorum: {%s}, real_servers: [{address: 10.0.0.1, weight: 60000, check: known}]")}
	case passiveObject:
		return []string{services(web + "passive: {%s}, " + server)}
	case defaultsObject:
		return []string{"checks: {known: {}, 80: {}}\ndefaults: {" + beside + "%s}" + rest}
	case serviceObject:
		switch k.name {
		case "address":
			return []string{services("%s")}
		case "fwmark":
			return []string{services("%s")}
		case "family":
			return []string{services("fwmark: 7, %s")}
		case "real_servers":
			return []string{services(web + "%s")}
		case "scheduler_flags":
			return []string{services(web + server + "scheduler: sh, %s"), services(web + server + "scheduler: mh, %s")}
		}
		return []string{services(web + server + beside + "%s")}
	case serverObject:
		if k.required {
			return []string{services(web + "real_servers: [{%s}]")}
		}
		return []string{services(web + "real_servers: [{address: 10.0.0.1, " + beside + "%s}]")}
	}
	t.Fatalf("no place for %s", o.what)
	return nil
}

// certificates are forms of the keys of TLS that name files, with what they need
// beside them.
func certificates(t *testing.T) map[string]string {
	t.Helper()
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{CommonName: "client"})
	dir := t.TempDir()
	for name, pem := range map[string][]byte{"/ca": ca.PEM(), "/cert": cert.CertPEM, "/key": cert.KeyPEM} {
		if err := os.WriteFile(dir+name, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{
		"ca": dir + "/ca", "cert": dir + "/cert, key: " + dir + "/key", "key": dir + "/key, cert: " + dir + "/cert",
	}
}

// The JSON Schema takes each form of each key that the parser takes.
func TestSchemaForms(t *testing.T) {
	schema := compileSchema(t)
	files := certificates(t)
	taken := 0
	for _, o := range objects() {
		for i := range o.keys {
			k := &o.keys[i]
			if k.unsupported {
				continue
			}
			found := false
			where := places(t, o, k)
			for _, v := range formsOf(k, files) {
				for _, place := range where {
					text := fmt.Sprintf(place, k.name+": "+v)
					if _, err := Parse("x", []byte(text)); err != nil {
						continue
					}
					found = true
					taken++
					if err := schema.Validate(plainValue(t, []byte(text))); err != nil {
						t.Errorf("%s\n%v", text, err)
					}
					break
				}
			}
			if !found {
				t.Errorf("%s of %s: no form of it is taken: give it a place", k.name, o.what)
			}
		}
	}
	if taken < 2000 {
		t.Errorf("want some thousand forms taken, got %d", taken)
	}
}

// formsOf are what a key is tried with.
func formsOf(k *key, files map[string]string) []string {
	values := slices.Clone(forms)
	for _, w := range k.enum {
		values = append(values, w, fmt.Sprintf("%q", w), "["+w+"]")
	}
	for _, v := range []string{k.def, k.example, files[k.name]} {
		if v != "" {
			values = append(values, v)
		}
	}
	return values
}
