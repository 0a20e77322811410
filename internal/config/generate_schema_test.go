package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// jsonSchema is schema.json.
func jsonSchema(t *testing.T) string {
	t.Helper()
	defs := map[string]any{}
	root := schemaObject(topObject, defs)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "lbd.yaml, the configuration of lbd"
	root["$defs"] = defs
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// schemaObject describes an object's keys in place.
func schemaObject(o *object, defs map[string]any) map[string]any {
	properties := map[string]any{}
	var required []string
	for i := range o.keys {
		k := &o.keys[i]
		if k.unsupported {
			continue
		}
		properties[k.name] = schemaKey(k, defs)
		if k.required {
			required = append(required, k.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	if o == serviceObject {
		properties["name"].(map[string]any)["pattern"] = namePattern
		s["oneOf"] = []any{
			map[string]any{"required": []string{"address"}},
			map[string]any{"required": []string{"fwmark"}},
		}
	}
	return s
}

// ref describes an object once and refers to it.
func ref(o *object, defs map[string]any) map[string]any {
	name := strings.ReplaceAll(strings.TrimPrefix(o.what, "a "), " ", "_")
	if _, ok := defs[name]; !ok {
		defs[name] = nil // it may contain itself
		defs[name] = schemaObject(o, defs)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

// durationPattern is what time.ParseDuration reads.
const durationPattern = `^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// statusPattern is what httpcheck.ParseStatusRanges reads.
const statusPattern = `^ *([1-5][xX][xX]|[1-5][0-9][0-9]( *- *[1-5][0-9][0-9])?) *(, *([1-5][xX][xX]|[1-5][0-9][0-9]( *- *[1-5][0-9][0-9])?) *)*$`

const namePattern = `^[A-Za-z0-9._:@+\[\]][A-Za-z0-9._:@+\[\]-]{0,127}$`

func schemaKey(k *key, defs map[string]any) map[string]any {
	s := schemaType(k, defs)
	if k.null && k.kind != kindCheck {
		s = map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
	}
	if k.doc != "" {
		s["description"] = k.doc
	}
	if d, ok := schemaDefault(k); ok {
		s["default"] = d
	}
	return s
}

func schemaType(k *key, defs map[string]any) map[string]any {
	switch k.kind {
	case kindInt:
		return map[string]any{"type": "integer", "minimum": k.min, "maximum": k.max}
	case kindBool:
		return map[string]any{"type": "boolean"}
	case kindDuration:
		return map[string]any{"type": "string", "pattern": durationPattern}
	case kindObject:
		return ref(k.object, defs)
	case kindMap:
		return map[string]any{
			"type":                 "object",
			"propertyNames":        map[string]any{"pattern": namePattern},
			"additionalProperties": ref(k.object, defs),
		}
	case kindInts:
		return ref(k.object, defs)
	case kindList:
		return map[string]any{"type": "array", "items": ref(k.object, defs)}
	case kindWords:
		return map[string]any{"type": "array", "items": map[string]any{"enum": k.enum}, "uniqueItems": true}
	case kindArgs:
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	case kindMask:
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "string"},
			map[string]any{"type": "integer", "minimum": 1, "maximum": 128},
		}}
	case kindBits:
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "string", "pattern": "^0x0*[0-9a-fA-F]{1,8}$"},
			map[string]any{"type": "integer", "minimum": 0, "maximum": int64(math.MaxUint32)},
		}}
	case kindTexts:
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "string"},
			map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		}}
	case kindTable:
		return map[string]any{"type": "object", "additionalProperties": scalarType()}
	case kindRaw:
		return scalarType()
	case kindExpect:
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"anyOf": []any{scalarType(), ref(k.object, defs)}}}
	case kindBytes:
		return map[string]any{"anyOf": []any{scalarType(), ref(k.object, defs)}}
	case kindStatus:
		one := map[string]any{"anyOf": []any{
			map[string]any{"type": "integer", "minimum": 100, "maximum": 599},
			map[string]any{"type": "string", "pattern": statusPattern},
		}}
		return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one}}}
	case kindChecks:
		return map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"anyOf": []any{
			scalarType(), ref(checkObject, defs),
		}}}
	case kindCheck:
		one := []any{scalarType(), ref(checkObject, defs)}
		return map[string]any{"anyOf": append(one, map[string]any{
			"type": "array", "items": map[string]any{"anyOf": one},
		}, map[string]any{"type": "null"})}
	}
	if len(k.enum) > 0 {
		return map[string]any{"enum": schemaWords(k.enum)}
	}
	return map[string]any{"type": "string"}
}

// scalarType is any text, quoted or not.
func scalarType() map[string]any {
	return map[string]any{"type": []string{"string", "number", "boolean"}}
}

// schemaWords are words as texts, and those that YAML takes for numbers without
// quotes as such, too.
func schemaWords(words []string) []any {
	var list []any
	for _, w := range words {
		list = append(list, w)
	}
	for _, w := range words {
		if f, err := strconv.ParseFloat(w, 64); err == nil {
			list = append(list, f)
		}
	}
	return list
}

// schemaDefault returns the default as JSON has it.
func schemaDefault(k *key) (any, bool) {
	switch {
	case k.def == "":
		return nil, false
	case k.def == `""`:
		return "", true
	case k.def == "[]":
		return []any{}, true
	case k.kind == kindBits:
		return strings.Trim(k.def, `"`), true
	case k.kind == kindBool:
		return k.def == "true", true
	case k.kind == kindInt:
		i, err := strconv.Atoi(k.def)
		if err != nil {
			panic(fmt.Sprintf("default of %s: %v", k.name, err))
		}
		return i, true
	}
	return k.def, true
}
