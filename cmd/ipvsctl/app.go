package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

// app is what the commands share.
type app struct {
	in     io.Reader
	out    *stickyWriter
	err    io.Writer
	colour bool
	// openKernel opens the kernel's table, for --direct.
	openKernel func() (kernelTable, error)

	// The global options.
	output  format
	socket  string
	timeout time.Duration
}

// client returns a client of lbd. With -o json it prints every answer as it
// came, and the commands print nothing more.
func (a *app) client() *api.Client {
	c := api.NewClient(a.socket, a.timeout)
	if a.output == formatJSON {
		c.OnAnswer = a.printJSON
	}
	return c
}

// text reports whether a command has to print for people.
func (a *app) text() bool { return a.output != formatJSON }

// printJSON prints JSON with line breaks.
func (a *app) printJSON(body []byte) {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(body), "", "  ") != nil {
		b.Reset()
		b.Write(body)
	}
	b.WriteByte('\n')
	a.out.Write(b.Bytes())
}

// printValue prints what did not come from lbd.
func (a *app) printValue(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a.printJSON(body)
	return nil
}

// readFile reads a file, or standard input for "-". What cannot be read is as
// unusable as a file with errors.
func (a *app) readFile(name string) (api.File, error) {
	in := a.in
	if name == "-" {
		name = "<stdin>"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return api.File{}, usagef("read the configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := config.ReadAll(in)
	if err != nil {
		return api.File{}, usagef("read the configuration: %w", err)
	}
	return api.File{Name: name, Content: string(data)}, nil
}

// format is the value of -o.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
)

var _ pflag.Value = (*format)(nil)

var formats = []string{string(formatTable), string(formatWide), string(formatJSON)}

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "FORMAT" }

// Set accepts the formats and nothing else.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatWide, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want table, wide or json")
}
