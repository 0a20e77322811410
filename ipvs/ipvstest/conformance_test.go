package ipvstest

import "testing"

func TestConformance(t *testing.T) {
	Conformance(t, func(*testing.T) Table { return New() })
}
