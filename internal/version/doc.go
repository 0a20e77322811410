// Package version says which version of lbd a binary is.
package version
