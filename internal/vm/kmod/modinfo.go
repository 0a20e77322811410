package kmod

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
)

// Module is what one module file says of itself.
type Module struct {
	// Name is the module's name with underscores, as /proc/modules prints it.
	Name string
	// Path is the module's file, relative to the release's module folder, with
	// the name of an uncompressed file (kernel/net/netfilter/ipvs/ip_vs.ko).
	Path string
	// Depends are the modules that must be loaded before it.
	Depends []string
	// SoftPre and SoftPost should be loaded before and after it. They may be
	// aliases, and may be absent.
	SoftPre, SoftPost []string
	// Aliases are the patterns that the kernel may ask for instead of Name.
	Aliases []string
}

// Canonical returns name the way the kernel compares module names: a dash and
// an underscore are the same.
func Canonical(name string) string {
	return strings.ReplaceAll(name, "-", "_")
}

// ReadELF returns what the module file data says of itself. It fails when data
// is no ELF object, or has no .modinfo section that names the module.
func ReadELF(data []byte) (Module, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return Module{}, fmt.Errorf("read module: %w", err)
	}
	s := f.Section(".modinfo")
	if s == nil {
		return Module{}, fmt.Errorf("read module: no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return Module{}, fmt.Errorf("read .modinfo: %w", err)
	}
	m := ParseModinfo(info)
	if m.Name == "" {
		return Module{}, fmt.Errorf("read .modinfo: module has no name")
	}
	return m, nil
}

// ParseModinfo reads the NUL-separated key=value strings of a .modinfo section
// (include/linux/moduleinfo.h, MODULE_INFO). Unknown keys and strings without
// an equals sign are skipped.
func ParseModinfo(section []byte) Module {
	var m Module
	for entry := range strings.SplitSeq(string(section), "\x00") {
		key, value, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		switch key {
		case "name":
			m.Name = Canonical(value)
		case "depends":
			for d := range strings.SplitSeq(value, ",") {
				if d != "" {
					m.Depends = append(m.Depends, Canonical(d))
				}
			}
		case "softdep":
			m.addSoftdep(value)
		case "alias":
			// A blank would end the word in the index.
			if value != "" && !strings.ContainsAny(value, " \t\n") {
				m.Aliases = append(m.Aliases, value)
			}
		}
	}
	return m
}

// addSoftdep reads "pre: a b post: c".
func (m *Module) addSoftdep(value string) {
	var to *[]string
	for word := range strings.FieldsSeq(value) {
		switch {
		case word == "pre:":
			to = &m.SoftPre
		case word == "post:":
			to = &m.SoftPost
		case to != nil:
			*to = append(*to, word)
		}
	}
}
