package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

const manPath = "../../packaging/man/lbd.yaml.5"

// The committed files are what the schema says. go generate rewrites them.
func TestGenerated(t *testing.T) {
	for path, want := range map[string]string{
		"reference.yaml": referenceYAML(),
		"schema.json":    jsonSchema(t),
		manPath:          manPage(t),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: run go generate ./internal/config (-want +got):\n%s", path, diff)
		}
	}
}

// objects returns every object of the schema, the file first.
func objects() []*object {
	var list []*object
	var walk func(o *object)
	walk = func(o *object) {
		if slices.Contains(list, o) {
			return
		}
		list = append(list, o)
		for _, k := range o.keys {
			if k.object != nil {
				walk(k.object)
			}
		}
	}
	walk(topObject)
	return list
}

// Every key has a place in reference.yaml and a sentence of its own.
func TestReferenceComplete(t *testing.T) {
	ref, err := os.ReadFile("reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects() {
		if len(o.keys) > maxKeys {
			t.Errorf("%s has %d keys, more than the parser has room for", o.what, len(o.keys))
		}
		for _, k := range o.keys {
			if k.unsupported || o == sysctlObject {
				continue
			}
			if !strings.Contains(string(ref), k.name+":") {
				t.Errorf("key %s of %s is not in reference.yaml", k.name, o.what)
			}
			if !strings.HasSuffix(k.doc, ".") {
				t.Errorf("key %s of %s: want a sentence, got %q", k.name, o.what, k.doc)
			}
		}
	}
	c, err := Parse("reference.yaml", ref)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings of reference.yaml: %q", c.Warnings)
	}
}

// What reference.yaml writes out is what is in force when it is left out.
func TestReferenceDefaults(t *testing.T) {
	ref, err := os.ReadFile("reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("x", ref)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("x", []byte(`
checks: {tcp-ok: {}}
virtual_services:
  - name: web
    address: 192.0.2.10:80
    check: tcp-ok
    real_servers: [{address: 10.0.0.2:80}]
`))
	if err != nil {
		t.Fatal(err)
	}
	want.VirtualServices[0].Line = got.VirtualServices[0].Line
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("-reference +defaults:\n%s", diff)
	}
}

// plainValue decodes YAML into what a JSON Schema validator takes.
func plainValue(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(stringKeys(v))
	if err != nil {
		t.Fatal(err)
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// stringKeys makes all keys texts, which they are in JSON.
func stringKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			m[fmt.Sprint(k)] = stringKeys(item)
		}
		return m
	case map[string]any:
		for k, item := range v {
			v[k] = stringKeys(item)
		}
	case []any:
		for i, item := range v {
			v[i] = stringKeys(item)
		}
	}
	return v
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The JSON Schema takes every good file.
func TestSchemaGood(t *testing.T) {
	schema := compileSchema(t)
	for _, path := range goodFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(plainValue(t, data)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The JSON Schema refuses what is wrong in itself; what contradicts something
// elsewhere in the file is beyond it.
func TestSchemaBad(t *testing.T) {
	schema := compileSchema(t)
	for _, name := range []string{
		"root-list", "root-scalar", "no-services", "services-null", "services-mapping", "service-scalar",
		"unknown-key", "unknown-service-key", "unknown-server-key", "unknown-check-key", "unknown-socket-key",
		"not-yet-top", "agent", "policy-fail-open", "policy-commands", "policy-backup", "policy-quorum", "engine", "on-exit",
		"exclusive", "exclusive-quoted", "netns-number", "interval-unit", "timeouts-key", "sysctl-name", "sysctl-range",
		"null-value", "service-no-address", "service-both", "service-protocol", "fwmark-range", "scheduler-flags",
		"scheduler-flags-repeated", "scheduler-flags-word", "persistence-engine", "persistence-scalar", "on-failure",
		"servers-null", "server-no-address", "server-weight", "server-forwarding", "tunnel-type", "check-number",
		"check-rise-fall", "check-port", "check-type", "check-scalar", "checks-list", "defaults-values", "service-name",
	} {
		config, _ := readCase(t, "testdata/bad/"+name+".txtar")
		if err := schema.Validate(plainValue(t, []byte(config))); err == nil {
			t.Errorf("%s: the JSON Schema takes it", name)
		}
	}
}
