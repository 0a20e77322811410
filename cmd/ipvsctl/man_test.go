package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lbd-project/lbd/internal/api"
)

// manPage renders the commands as ipvsctl.8 with the man macros (man(7)).
func manPage(root *cobra.Command) string {
	m := &manWriter{}
	m.macro(`.\" Made from the commands of cmd/ipvsctl by go generate. Do not edit.`)
	m.macro(`.TH IPVSCTL 8 "" lbd "System Manager's Manual"`)
	m.section("NAME")
	m.text("ipvsctl - " + strings.ToLower(root.Short[:1]) + root.Short[1:])
	m.section("SYNOPSIS")
	m.usage(usageLine(root))
	m.section("DESCRIPTION")
	m.text("ipvsctl asks and tells a running lbd(8) over its control socket. Data goes to standard output, everything else to standard error, each line after the name of the program. The output is for people, aligned and with colour on a terminal; -o json prints what the control API answers, for programs.")
	m.section("COMMANDS")
	for _, c := range root.Commands() {
		m.macro(".TP")
		m.usage(usageLine(c))
		for i, par := range strings.Split(c.Long, "\n\n") {
			if i > 0 {
				m.macro(".IP")
			}
			m.text(strings.ReplaceAll(par, "\n", " "))
		}
		if len(c.Aliases) > 0 {
			m.text("An alias is " + strings.Join(c.Aliases, ", ") + ".")
		}
		m.options(c.LocalFlags())
	}
	m.section("OPTIONS")
	m.text("The options may stand before or after the command.")
	m.options(root.LocalFlags())
	m.section("EXIT STATUS")
	for _, s := range strings.Split(exitStatuses, ", ") {
		code, meaning, _ := strings.Cut(s, " ")
		m.item(code, meaning)
	}
	m.section("ENVIRONMENT")
	m.item("NO_COLOR", "If set and not empty, there is no colour.")
	m.item("TERM", "If it is dumb, there is no colour either.")
	m.section("FILES")
	m.item(api.DefaultSocket, "The control socket of lbd. Root and the members of its group may use it.")
	m.section("EXAMPLES")
	for _, c := range root.Commands() {
		if c.Example != "" {
			m.macro(".PP\n.EX")
			for line := range strings.SplitSeq(c.Example, "\n") {
				m.macro(manEscape(strings.TrimPrefix(line, "  ")))
			}
			m.macro(".EE")
		}
	}
	m.section("SEE ALSO")
	m.macro(`.BR lbd (8),` + "\n" + `.BR lbd.yaml (5),` + "\n" + `.BR ipvsadm (8)`)
	return m.String()
}

type manWriter struct{ strings.Builder }

func (m *manWriter) macro(line string)   { m.WriteString(line + "\n") }
func (m *manWriter) section(name string) { m.macro(".SH " + name) }
func (m *manWriter) text(s string)       { m.macro(manEscape(s)) }

// usage prints a usage line: the words of the command bold, the placeholders
// italic.
func (m *manWriter) usage(line string) {
	var words []string
	for w := range strings.FieldsSeq(line) {
		font := `\fB`
		if strings.ToUpper(w) == w {
			font = `\fI`
		}
		words = append(words, font+manEscape(w)+`\fR`)
	}
	m.macro(strings.Join(words, " "))
}

func (m *manWriter) item(term, text string) {
	m.macro(".TP\n.B " + manEscape(term))
	m.text(text)
}

func (m *manWriter) options(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		value, usage := optionText(f)
		names := `\fB` + manEscape("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = fmt.Sprintf(`\fB%s\fR, %s`, manEscape("-"+f.Shorthand), names)
		}
		if value != "" {
			names += ` \fI` + manEscape(value) + `\fR`
		}
		m.macro(".TP\n" + names)
		m.text(usage)
	})
}

// manEscape keeps text from being read as a request or an escape.
func manEscape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
