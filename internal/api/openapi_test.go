package api

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// schema is the part of an OpenAPI schema that openapi.json uses.
type schema struct {
	Ref                  string            `json:"$ref"`
	AllOf                []schema          `json:"allOf"`
	Type                 string            `json:"type"`
	Format               string            `json:"format"`
	Description          string            `json:"description"`
	Minimum              *int              `json:"minimum"`
	Enum                 []string          `json:"enum"`
	Required             []string          `json:"required"`
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties *schema           `json:"additionalProperties"`
}

type content map[string]struct{ Schema schema }

type operation struct {
	OperationID string
	Summary     string
	Parameters  []struct{ Name, In string }
	RequestBody *struct{ Content content }
	Responses   map[string]struct {
		Ref     string `json:"$ref"`
		Content content
	}
}

type openAPI struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses map[string]struct{ Content content }
		Schemas   map[string]schema
	}
}

// answer returns the content type and the schema of the answer.
func (op operation) answer() (contentType string, s schema) {
	for contentType, c := range op.Responses["200"].Content {
		return contentType, c.Schema
	}
	return "", schema{}
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc openAPI
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// describe prints a schema as jsonType prints a Go type.
func (s schema) describe() string {
	switch {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/components/schemas/")
	case len(s.AllOf) == 1:
		return s.AllOf[0].describe()
	case s.Items != nil:
		return s.Type + " of " + s.Items.describe()
	case s.AdditionalProperties != nil:
		return s.Type + " of " + s.AdditionalProperties.describe()
	case s.Format != "":
		return s.Format
	}
	return s.Type
}

func jsonType(typ reflect.Type) string {
	switch {
	case typ.Kind() == reflect.Pointer:
		return jsonType(typ.Elem())
	case typ == reflect.TypeFor[time.Time]():
		return "date-time"
	case typ.Kind() == reflect.Struct:
		return typ.Name()
	case typ.Kind() == reflect.Slice:
		return "array of " + jsonType(typ.Elem())
	case typ.Kind() == reflect.Map:
		return "object of " + jsonType(typ.Elem())
	case typ.Kind() == reflect.String:
		return "string"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	case typ.Kind() == reflect.Float64:
		return "number"
	}
	return "integer"
}

// goSchema is what must be in openapi.json for a Go struct: the fields with
// their types, and those that are always there.
func goSchema(typ reflect.Type) (properties map[string]string, required []string) {
	properties = map[string]string{}
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = jsonType(f.Type)
		if options == "" {
			required = append(required, name)
		}
	}
	return properties, required
}

// TestOpenAPISchemas walks every type that an answer or a body can contain.
func TestOpenAPISchemas(t *testing.T) {
	doc := readOpenAPI(t)
	seen := map[string]bool{}
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() || seen[typ.Name()] {
			return
		}
		seen[typ.Name()] = true
		s, ok := doc.Components.Schemas[typ.Name()]
		if !ok {
			t.Errorf("no schema %s", typ.Name())
			return
		}
		wantProperties, wantRequired := goSchema(typ)
		gotProperties := map[string]string{}
		for name, p := range s.Properties {
			gotProperties[name] = p.describe()
			if p.Description == "" && p.Ref == "" {
				t.Errorf("%s.%s has no description", typ.Name(), name)
			}
		}
		if diff := cmp.Diff(wantProperties, gotProperties); diff != "" {
			t.Errorf("%s: properties (-want +got):\n%s", typ.Name(), diff)
		}
		if diff := cmp.Diff(wantRequired, s.Required); diff != "" {
			t.Errorf("%s: required (-want +got):\n%s", typ.Name(), diff)
		}
		for f := range typ.Fields() {
			check(f.Type)
		}
	}
	for _, v := range []any{
		Version{}, Status{}, Service{}, Connection{}, Explanation{}, Diagnosis{}, AdminRequest{}, AdminResult{}, Event{}, Notification{}, File{}, CheckReport{}, Plan{}, ReloadResult{}, ReconcileResult{}, Error{},
	} {
		check(reflect.TypeOf(v))
	}
	for name := range doc.Components.Schemas {
		if !seen[name] {
			t.Errorf("schema %s belongs to no type", name)
		}
	}
}

// TestOpenAPIRoutes compares the paths, and the types of bodies and answers by
// the client's methods.
func TestOpenAPIRoutes(t *testing.T) {
	answers := map[string][2]string{ // request body, answer
		"version":            {"", "Version"},
		"status":             {"", "Status"},
		"services":           {"", "array of Service"},
		"table":              {"", "array of Service"},
		"connections":        {"", "lines of Connection"},
		"explain":            {"", "Explanation"},
		"doctor":             {"", "Diagnosis"},
		"service":            {"", "Service"},
		"setAdmin":           {"AdminRequest", "AdminResult"},
		"setAdminEverywhere": {"AdminRequest", "AdminResult"},
		"events":             {"", "lines of Event"},
		"check":              {"File", "CheckReport"},
		"diff":               {"File", "Plan"},
		"reload":             {"", "ReloadResult"},
		"reconcile":          {"", "ReconcileResult"},
	}
	doc := readOpenAPI(t)
	var want, got []string
	for _, rt := range (&Server{}).routes() {
		want = append(want, rt.method+" "+rt.path)
	}
	ids := map[string]bool{}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			name := strings.ToUpper(method) + " " + path
			got = append(got, name)
			ids[op.OperationID] = true
			body := ""
			if op.RequestBody != nil {
				body = op.RequestBody.Content["application/json"].Schema.describe()
			}
			contentType, s := op.answer()
			answer := s.describe()
			if contentType == linesType {
				answer = "lines of " + answer
			}
			pair := [2]string{body, answer}
			if pair != answers[op.OperationID] {
				t.Errorf("%s: want %q, got %q", name, answers[op.OperationID], pair)
			}
			query := map[string]bool{}
			for _, param := range op.Parameters {
				if strings.Contains(path, "{"+param.Name+"}") != (param.In == "path") {
					t.Errorf("%s: parameter %s in %s", name, param.Name, param.In)
				}
				query[param.Name] = param.In == "query"
			}
			if want := (ConnectionQuery{"a", endpoint("::1"), endpoint("::1"), "UDP"}).values(); path == "/v1/connections" {
				for p := range want {
					if !query[p] {
						t.Errorf("%s: no parameter %s", name, p)
					}
				}
			}
			if want := (EventQuery{1, true}).values(); path == "/v1/events" {
				for p := range want {
					if !query[p] {
						t.Errorf("%s: no parameter %s", name, p)
					}
				}
			}
			for code, r := range op.Responses {
				if _, ok := doc.Components.Responses[code]; code != "200" && (!ok || r.Ref != "#/components/responses/"+code) {
					t.Errorf("%s: response %s refers to %q", name, code, r.Ref)
				}
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if len(ids) != len(answers) {
		t.Errorf("want %d operation ids, got %v", len(answers), ids)
	}
	for code, r := range doc.Components.Responses {
		if s := r.Content["application/json"].Schema.describe(); s != "Error" {
			t.Errorf("response %s: want Error, got %s", code, s)
		}
	}
}

// TestAnswersKeepToOpenAPI holds real answers with every field set against the
// enumerations and formats.
func TestAnswersKeepToOpenAPI(t *testing.T) {
	doc := readOpenAPI(t)
	socket := serve(t, fixture(), Options{}, defaultLimits)
	for path, ops := range doc.Paths {
		op, ok := ops["get"]
		if !ok || strings.Contains(path, "{") {
			continue
		}
		_, _, body := request(t, socket, "GET", path, "", "")
		_, s := op.answer()
		for line := range strings.Lines(body) { // one, but of a stream
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			doc.validate(t, op.OperationID, s, v)
		}
	}
}

func (doc openAPI) validate(t *testing.T, at string, s schema, v any) {
	t.Helper()
	switch {
	case s.Ref != "":
		s = doc.Components.Schemas[s.describe()]
	case len(s.AllOf) == 1:
		s = doc.Components.Schemas[s.describe()]
	}
	ok := false
	switch v := v.(type) {
	case map[string]any:
		ok = s.Type == "object"
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				t.Errorf("%s.%s: missing", at, name)
			}
		}
		for name, value := range v {
			switch p, there := s.Properties[name]; {
			case there:
				doc.validate(t, at+"."+name, p, value)
			case s.AdditionalProperties != nil:
				doc.validate(t, at+"."+name, *s.AdditionalProperties, value)
			default:
				t.Errorf("%s.%s: not described", at, name)
			}
		}
	case []any:
		ok = s.Type == "array"
		for _, e := range v {
			doc.validate(t, at+"[]", *s.Items, e)
		}
	case string:
		ok = s.Type == "string" && (s.Enum == nil || slices.Contains(s.Enum, v))
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339, v)
			ok = ok && err == nil
		}
	case float64:
		ok = s.Type == "number" || s.Type == "integer" && v == float64(int64(v))
		if s.Minimum != nil {
			ok = ok && v >= float64(*s.Minimum)
		}
	case bool:
		ok = s.Type == "boolean"
	}
	if !ok {
		t.Errorf("%s: %v is not %s", at, v, s.describe())
	}
}
