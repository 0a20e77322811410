// Package archtest fails when the imports of this module break its layering.
//
// It holds tests only. docs/ARCHITECTURE.md explains the layers.
package archtest
