package config

import (
	"strings"

	"github.com/lbd-project/lbd/healthcheck/expect"
)

// options are the keys of a check that only its type has.
type options struct {
	p *parser
	// at is the check, for what is missing.
	at    *node
	kind  string
	given map[string]*node
}

// key returns a key of a check, and its value: what the file says, or the
// default, or nil.
func (o *options) key(name string) (*key, *node) {
	return lookUp(checkObject, o.given, name)
}

// lookUp returns a key of an object and its value.
func lookUp(obj *object, given map[string]*node, name string) (*key, *node) {
	i, ok := obj.find(name)
	if !ok {
		panic("config: " + obj.what + " has no key " + name)
	}
	k := &obj.keys[i]
	if v := given[name]; v != nil {
		return k, v
	}
	return k, k.defaultNode()
}

func (o *options) text(name string) string {
	k, v := o.key(name)
	if v == nil {
		return ""
	}
	s, _ := o.p.text(k, v)
	return s
}

func (o *options) word(name string) string {
	k, v := o.key(name)
	s, _ := o.p.word(k, v)
	return s
}

func (o *options) boolean(name string) bool {
	k, v := o.key(name)
	if v == nil {
		return false
	}
	b, _ := o.p.boolean(k, v)
	return b
}

func (o *options) integer(name string) int {
	k, v := o.key(name)
	i, _ := o.p.integer(k, v)
	return int(i)
}

func (o *options) texts(name string) []string {
	k, v := o.key(name)
	if v == nil {
		return nil
	}
	return o.p.texts(k, v)
}

// arguments reads a program and its arguments. There must be one.
func (o *options) arguments(name string) []string {
	k, v := o.key(name)
	if v == nil {
		o.p.errorf(o.at, "a check of type %s needs %s", o.kind, name)
		return nil
	}
	if v.kind == sequence && v.first == nil {
		o.p.errorf(v, "%s: want a list of a program and its arguments, got %s", name, describe(v))
		return nil
	}
	return o.p.arguments(k, v)
}

func (o *options) table(name string) [][2]string {
	k, v := o.key(name)
	if v == nil {
		return nil
	}
	return o.p.table(k, v)
}

// raw reads a text in which control characters may be.
func (o *options) raw(name string) string {
	k, v := o.key(name)
	if v == nil {
		return ""
	}
	if v.kind != scalar || v.isNull() {
		o.p.errorf(v, "%s: want text, got %s", k.name, describe(v))
		return ""
	}
	return strings.Clone(v.value)
}

func (o *options) payload(name string) []byte {
	k, v := o.key(name)
	if v == nil {
		return nil
	}
	return o.p.payload(k, v)
}

func (o *options) expect(name string) expect.Expect {
	k, v := o.key(name)
	if v == nil {
		return expect.Expect{}
	}
	return o.p.expect(k, v, matchObject)
}

// path reads an absolute path; empty for none.
func (o *options) path(name string) string {
	k, v := o.key(name)
	if v == nil {
		return ""
	}
	return o.p.path(k, v)
}

func (p *parser) path(k *key, v *node) string {
	s, ok := p.text(k, v)
	if ok && (!strings.HasPrefix(s, "/") || len(s) > 4095) {
		p.errorf(v, "%s: want an absolute path, got %s", k.name, describe(v))
		return ""
	}
	return s
}

// texts reads a list of texts, or one.
func (p *parser) texts(k *key, v *node) []string {
	if v.kind == scalar {
		s, ok := p.text(k, v)
		if !ok {
			return nil
		}
		return []string{s}
	}
	if v.kind != sequence {
		p.errorf(v, "%s: want a list of texts, got %s", k.name, describe(v))
		return nil
	}
	var list []string
	for item := v.first; item != nil && !p.full; item = item.next {
		if s, ok := p.text(k, item); ok {
			list = append(list, s)
		}
	}
	return list
}

// table reads a mapping of names to texts, in the order of the file.
func (p *parser) table(k *key, v *node) [][2]string {
	if v.kind != mapping {
		p.errorf(v, "%s: want a mapping of names to texts, got %s", k.name, describe(v))
		return nil
	}
	var list [][2]string
	for kn := v.first; kn != nil && !p.full; kn = kn.next.next {
		name, ok := p.text(k, kn)
		if !ok {
			continue
		}
		value := kn.next
		if value.kind != scalar || value.isNull() {
			p.errorf(value, "%s: %s: want text, got %s", k.name, name, describe(value))
			continue
		}
		list = append(list, [2]string{name, strings.Clone(value.value)})
	}
	return list
}

// payload reads bytes: a text, or a mapping that gives them. Control characters
// may be in it.
func (p *parser) payload(k *key, v *node) []byte {
	kind, value := p.either(k, v, bytesObject)
	switch kind {
	case "text":
		return []byte(value)
	case "hex":
		b, err := expect.ParseHex(value)
		if err != nil {
			p.errorf(v, "%s: %v", k.name, err)
		}
		return b
	}
	return nil
}

// expect reads what an answer must have: a text, or a mapping with the keys of o.
func (p *parser) expect(k *key, v *node, o *object) (e expect.Expect) {
	if v.kind == mapping {
		for kn := v.first; kn != nil; kn = kn.next.next {
			to := map[string]*bool{"not": &e.Negate, "at_start": &e.Start}[kn.value]
			if to != nil {
				k, _ := lookUp(o, nil, kn.value)
				*to, _ = p.boolean(k, kn.next)
			}
		}
	}
	kind, value := p.either(k, v, o)
	e.Value = value
	switch kind {
	case "text":
		e.Kind = expect.Text
	case "hex":
		e.Kind = expect.Hex
	case "regex":
		e.Kind = expect.Regex
	default:
		return expect.Expect{}
	}
	if err := e.Validate(); err != nil {
		p.errorf(v, "%s: %v", k.name, err)
		return expect.Expect{}
	}
	return e
}

// either reads a text, or a mapping with one of the texts that o has, and returns
// its key.
func (p *parser) either(k *key, v *node, o *object) (kind, value string) {
	if v.kind == scalar && !v.isNull() {
		return "text", strings.Clone(v.value)
	}
	p.object(v, o, func(k *key, v *node) {
		switch {
		case k.kind != kindRaw:
		case kind != "":
			p.errorf(v, "%s: there is %s already", k.name, kind)
		case v.kind != scalar || v.isNull():
			p.errorf(v, "%s: want text, got %s", k.name, describe(v))
		default:
			kind, value = k.name, strings.Clone(v.value)
		}
	})
	if kind == "" && v.kind == mapping {
		p.errorf(v, "%s: want text or another of its keys in it", k.name)
	}
	return kind, value
}

// maxFile is the largest file that a check may name, in bytes: the certificates
// of all authorities have some 200 KiB.
const maxFile = 1 << 20

// readFile reads the file at an absolute path.
func (p *parser) readFile(k *key, v *node) []byte {
	name := p.path(k, v)
	if name == "" {
		return nil
	}
	b, err := ReadFile(name)
	switch {
	case err != nil:
		p.errorf(v, "%s: %v", k.name, err)
	case len(b) > maxFile:
		p.errorf(v, "%s: %s has more than %d bytes", k.name, describe(v), maxFile)
	case len(b) == 0:
		p.errorf(v, "%s: %s is empty", k.name, describe(v))
	}
	return b
}
