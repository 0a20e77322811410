package config

import "strings"

// arguments reads a program and its arguments; none for an empty list. In an
// argument, which may be a script for a shell, there are lines and tabs.
func (p *parser) arguments(k *key, v *node) []string {
	if v.kind != sequence {
		p.errorf(v, "%s: want a list of a program and its arguments, got %s", k.name, describe(v))
		return nil
	}
	var args []string
	for item := v.first; item != nil && !p.full; item = item.next {
		read := p.argument
		if args == nil {
			read = p.program
		}
		s, ok := read(k, item)
		if !ok {
			return nil
		}
		args = append(args, s)
	}
	return args
}

// program reads the absolute path of a program.
func (p *parser) program(k *key, v *node) (string, bool) {
	s, ok := p.text(k, v)
	if !ok {
		return "", false
	}
	if !strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		p.errorf(v, "%s: want the absolute path of a program, got %s", k.name, describe(v))
		return "", false
	}
	if strings.ContainsRune(s, ' ') {
		p.warnf(v, "%s: the name of the program is %s: each argument is an item of the list", k.name, describe(v))
	}
	return s, true
}

func (p *parser) argument(k *key, v *node) (string, bool) {
	switch {
	case v.kind != scalar || v.isNull():
		p.errorf(v, "%s: want text, got %s", k.name, describe(v))
	case !v.quoted && looksTyped(v.value):
		p.errorf(v, "%s: want text, got %s: put it in quotes", k.name, v.value)
	case strings.ContainsRune(v.value, 0):
		p.errorf(v, "%s: %s has a zero byte", k.name, describe(v))
	default:
		return strings.Clone(v.value), true
	}
	return "", false
}
