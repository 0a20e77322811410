package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// describe says what a node is, for "want …, got …".
func describe(n *node) string {
	switch {
	case n.kind == mapping:
		return "a mapping"
	case n.kind == sequence && n.first == nil:
		return "an empty list"
	case n.kind == sequence:
		return "a list"
	case n.isNull():
		return "nothing"
	default:
		return strconv.Quote(shorten(n.value))
	}
}

// shorten keeps messages short.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// oneOf prints "a", "a or b", "a, b or c".
func oneOf(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" {
			quoted[i] = `""`
		}
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// looksTyped says whether YAML takes a plain scalar for a number or a boolean.
func looksTyped(s string) bool {
	switch s {
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return true
	}
	if s == "" || !strings.ContainsRune("0123456789+-.", rune(s[0])) {
		return false
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return true
	}
	_, err := strconv.ParseInt(s, 0, 64)
	return err == nil
}

// text reads a string, one of the allowed words if the key has such.
func (p *parser) text(k *key, v *node) (string, bool) {
	if v.kind != scalar || v.isNull() {
		p.errorf(v, "%s: want text, got %s", k.name, describe(v))
		return "", false
	}
	if len(k.enum) > 0 {
		return p.word(k, v)
	}
	if !v.quoted && looksTyped(v.value) {
		p.errorf(v, "%s: want text, got %s: put it in quotes", k.name, v.value)
		return "", false
	}
	if strings.ContainsFunc(v.value, unicode.IsControl) {
		p.errorf(v, "%s: %s has a control character", k.name, describe(v))
		return "", false
	}
	return strings.Clone(v.value), true
}

// word reads one of the allowed words of a key.
func (p *parser) word(k *key, v *node) (string, bool) {
	if v.kind != scalar || v.isNull() {
		p.errorf(v, "%s: want %s, got %s", k.name, oneOf(k.enum), describe(v))
		return "", false
	}
	for _, w := range k.enum {
		if w == v.value {
			return w, true
		}
	}
	if ours, ok := k.others[v.value]; ok {
		p.errorf(v, "%s: want %s, lbd's word for %s", k.name, ours, v.value)
		return "", false
	}
	if instead, ok := k.lacks[v.value]; ok {
		p.errorf(v, "%s: lbd has no check %s: %s", k.name, v.value, instead)
		return "", false
	}
	p.errorf(v, "%s: want %s, got %s", k.name, oneOf(k.enum), describe(v))
	return "", false
}

// integer reads a whole number in the key's range.
func (p *parser) integer(k *key, v *node) (int64, bool) {
	i, ok := parseInt(v)
	if !ok {
		hint := ""
		if v.quoted {
			if _, ok := parseInt(&node{value: v.value}); ok {
				hint = " in quotes: leave them out"
			}
		}
		p.errorf(v, "%s: want a whole number of %d to %d, got %s%s", k.name, k.min, k.max, describe(v), hint)
		return 0, false
	}
	if i < k.min || i > k.max {
		p.errorf(v, "%s: want %d to %d, got %s", k.name, k.min, k.max, v.value)
		return 0, false
	}
	return i, true
}

// parseInt reads decimal or 0x. A leading 0 is refused: YAML 1.1 takes it for
// octal, YAML 1.2 for decimal.
func parseInt(v *node) (int64, bool) {
	if v.kind != scalar || v.quoted {
		return 0, false
	}
	s := v.value
	digits := strings.TrimPrefix(s, "-")
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		i, err := strconv.ParseUint(hex, 16, 63)
		return int64(i), err == nil
	}
	if digits == "" || digits[0] < '0' || digits[0] > '9' || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseInt(s, 10, 64)
	return i, err == nil
}

// boolean reads true or false.
func (p *parser) boolean(k *key, v *node) (value, ok bool) {
	if v.kind == scalar && !v.quoted {
		switch v.value {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	p.errorf(v, "%s: want true or false, got %s", k.name, describe(v))
	return false, false
}

// duration reads a Go duration in the key's range.
func (p *parser) duration(k *key, v *node) (time.Duration, bool) {
	var d time.Duration
	ok := false
	if v.kind == scalar && !v.isNull() {
		var err error
		d, err = time.ParseDuration(v.value)
		ok = err == nil && v.value != "0"
	}
	if !ok {
		hint := ""
		if _, isInt := parseInt(v); isInt {
			hint = ": the unit is missing"
		}
		p.errorf(v, "%s: want a duration such as 30s, 5m or 500ms, got %s%s", k.name, describe(v), hint)
		return 0, false
	}
	if d < time.Duration(k.min) || d > time.Duration(k.max) {
		p.errorf(v, "%s: want %s to %s, got %s", k.name, shortDuration(k.min), shortDuration(k.max), v.value)
		return 0, false
	}
	if k.seconds && d%time.Second != 0 {
		p.errorf(v, "%s: want whole seconds, got %s", k.name, v.value)
		return 0, false
	}
	return d, true
}

// shortDuration prints 5m instead of 5m0s.
func shortDuration(ns int64) string {
	s := time.Duration(ns).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// object reads a mapping with the keys of o, and gives each value to set. It is
// false if n is no mapping.
func (p *parser) object(n *node, o *object, set func(k *key, v *node)) bool {
	if n.kind != mapping {
		p.errorf(n, "%s: want a mapping of keys to values, got %s", o.what, describe(n))
		return false
	}
	var seen [maxKeys]*node
	var meant [maxKeys]bool
	for kn := n.first; kn != nil && !p.full; kn = kn.next.next {
		v := kn.next
		if kn.kind != scalar {
			p.errorf(kn, "%s: want a key, got %s", o.what, describe(kn))
			continue
		}
		i, known := o.find(kn.value)
		if !known {
			if i, ok := p.unknown(kn, o); ok {
				meant[i] = true // do not report it as missing, too
			}
			continue
		}
		if first := seen[i]; first != nil {
			p.errorf(kn, "repeated key %q, first at line %d", kn.value, first.line)
			continue
		}
		seen[i] = kn
		switch k := &o.keys[i]; {
		case k.unsupported:
			p.errorf(kn, "%s is not supported yet", k.name)
		case v.isNull() && !k.null && k.kind == kindList:
			p.errorf(v, "%s has no value: write [] for none", k.name)
		case v.isNull() && !k.null:
			p.errorf(v, "%s has no value", k.name)
		default:
			set(k, v)
		}
	}
	for i := range o.keys {
		if o.keys[i].required && seen[i] == nil && !meant[i] {
			p.errorf(n, "%s needs %s", o.what, o.keys[i].name)
		}
	}
	return true
}

// unknown reports a key that o does not have, and returns the index of the one
// that was likely meant.
func (p *parser) unknown(kn *node, o *object) (int, bool) {
	if kn.value == "<<" && !kn.quoted {
		p.errorf(kn, "merge keys are not supported: use defaults for what repeats")
		return 0, false
	}
	if ours := o.ours(kn.value); ours != "" {
		p.errorf(kn, "unknown key %s: lbd calls it %s", describe(kn), ours)
		return o.find(ours[:strings.IndexAny(ours+".", ".:")])
	}
	var names []string
	for _, k := range o.keys {
		if !k.unsupported {
			names = append(names, k.name)
		}
	}
	lastWord := kn.value[strings.LastIndexByte(kn.value, '.')+1:] // of net.ipv4.vs.conntrack
	near, ok := closest(kn.value, names)
	if !ok {
		near, ok = closest(lastWord, names)
	}
	if ok {
		p.errorf(kn, "unknown key %s, did you mean %s?", describe(kn), near)
		return o.find(near)
	}
	slices.Sort(names)
	p.errorf(kn, "unknown key %s: %s has %s", describe(kn), o.what, strings.Join(names, ", "))
	return 0, false
}

// defaults gives set the default of every key that has one.
func defaults(o *object, set func(k *key, v *node)) {
	for i := range o.keys {
		if k := &o.keys[i]; k.def != "" {
			set(k, k.defaultNode())
		}
	}
}

// defaultNode is the key's default as if the file had it; nil for none.
func (k *key) defaultNode() *node {
	if k.def == "" {
		return nil
	}
	text, quoted := strings.CutPrefix(k.def, `"`)
	return &node{value: strings.TrimSuffix(text, `"`), quoted: quoted}
}

// unhandled is for a key of the schema that the parser forgot.
func unhandled(k *key) string { return fmt.Sprintf("config: key %s is in the schema alone", k.name) }
