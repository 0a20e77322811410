package config

import (
	"fmt"
	"strings"
)

const referenceHead = `# lbd.yaml: every key with its default.
#
# Copy what you need: each key may be left out, but for virtual_services and the
# address of a service and of a real server. Lines with a # right before the key
# would change something, or exclude another key. See lbd.yaml(5).
`

// referenceYAML is reference.yaml.
func referenceYAML() string {
	r := referenceWriter{told: map[string]bool{}}
	r.WriteString(referenceHead)
	r.keys(topObject, "", "")
	return r.String()
}

// referenceWriter writes keys with their defaults.
type referenceWriter struct {
	strings.Builder
	// told are the keys whose sentences have been written.
	told map[string]bool
}

// keys writes the keys of an object. The first line starts with first, which is
// indent or ends in a dash.
func (r *referenceWriter) keys(o *object, first, indent string) {
	for i := range o.keys {
		k := &o.keys[i]
		if k.unsupported {
			continue
		}
		if o == topObject {
			r.WriteByte('\n')
		}
		r.comment(k, strings.ReplaceAll(first, "-", " "), strings.Contains(first, "-"))
		off := k.off || k.types != nil || k.kind == kindCheck && o != serviceObject
		r.value(k, first, indent, off)
		first = indent
	}
}

// comment writes what a key does, once.
func (r *referenceWriter) comment(k *key, indent string, dash bool) {
	if r.told[k.name+k.doc] {
		return
	}
	r.told[k.name+k.doc] = true
	if dash {
		indent = indent[:len(indent)-2]
	}
	r.lines(k.doc+limits(k)+ofTypes(k), indent)
}

func (r *referenceWriter) lines(text, indent string) {
	for _, line := range wrap(text, 78-len(indent)) {
		fmt.Fprintf(r, "%s# %s\n", indent, line)
	}
}

// value writes a key with its default or an example.
func (r *referenceWriter) value(k *key, first, indent string, off bool) {
	mark := ""
	if off {
		mark = "#"
	}
	value := k.def
	if value == "" {
		value = k.example
	}
	switch k.kind {
	case kindObject:
		if off {
			fmt.Fprintf(r, "%s%s%s: {%s}\n", first, mark, k.name, r.inline(k.object, first))
			return
		}
		fmt.Fprintf(r, "%s%s:\n", first, k.name)
		r.keys(k.object, indent+"  ", indent+"  ")
	case kindMap:
		fmt.Fprintf(r, "%s%s:\n%s  %s:\n", first, k.name, indent, value)
		r.keys(k.object, indent+"    ", indent+"    ")
	case kindList:
		if k.def != "" {
			fmt.Fprintf(r, "%s%s: %s\n", first, k.name, k.def)
			if !off {
				return
			}
		}
		if off {
			fmt.Fprintf(r, "%s%s%s: [{%s}]\n", first, mark, k.name, r.inline(k.object, first))
			return
		}
		fmt.Fprintf(r, "%s%s:\n", first, k.name)
		r.keys(k.object, indent+"  - ", indent+"    ")
	case kindInts:
		var parts []string
		for _, sub := range k.object.keys {
			if sub.def == "" {
				continue
			}
			parts = append(parts, sub.name+": "+sub.def)
			r.lines(sub.name+": "+sub.doc, first)
		}
		fmt.Fprintf(r, "%s%s: {%s}\n", first, k.name, strings.Join(parts, ", "))
	case kindBytes, kindExpect:
		r.inline(k.object, first)
		fmt.Fprintf(r, "%s%s%s: %s\n", first, mark, k.name, value)
	case kindWords:
		fmt.Fprintf(r, "%s%s: []\n", first, k.name)
	default:
		fmt.Fprintf(r, "%s%s%s: %s\n", first, mark, k.name, value)
	}
}

// inline writes what the keys of an object do, and returns the keys with their
// values in one line.
func (r *referenceWriter) inline(o *object, first string) string {
	var parts []string
	for _, sub := range o.keys {
		v := sub.def
		if v == "" {
			v = sub.example
		}
		parts = append(parts, sub.name+": "+v)
		if !r.told[sub.name+sub.doc] {
			r.told[sub.name+sub.doc] = true
			r.lines(sub.name+": "+sub.doc+limits(&sub), first)
		}
	}
	return strings.Join(parts, ", ")
}

// limits says what values a key takes, after its sentences.
func limits(k *key) string {
	switch k.kind {
	case kindInt:
		return fmt.Sprintf(" Range: %d to %d.", k.min, k.max)
	case kindDuration:
		return fmt.Sprintf(" Range: %s to %s.", shortDuration(k.min), shortDuration(k.max))
	case kindBool:
		return " One of: true, false."
	case kindWords:
		return " Any of: " + strings.Join(k.enum, ", ") + "."
	case kindInts:
		var names []string
		for _, s := range k.object.keys {
			if !s.unsupported {
				names = append(names, fmt.Sprintf("%s (%d to %d)", s.name, s.min, s.max))
			}
		}
		return " Names and ranges: " + strings.Join(names, ", ") + "."
	}
	if len(k.enum) > 0 {
		words := strings.Join(k.enum, ", ")
		if k.enum[0] == "" {
			words = `""` + words
		}
		return " One of: " + words + "."
	}
	return ""
}

// wrap breaks text into lines of at most width characters where it can.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width-2 {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
