// Package config turns the bytes of lbd.yaml into a validated Config.
//
// Parse is pure: it reads no file, resolves no name and needs no privilege. It
// is strict (unknown, repeated and not yet supported keys are errors) and
// reports everything that is wrong at once, each with its file:line:col. What
// only the host can answer, such as whether a scheduler or a group exists, is
// not checked here.
//
// One table, in schema.go, describes every key with its type, range and
// default. The parser reads it, and so do the generators of reference.yaml, of
// schema.json and of the manual page lbd.yaml(5).
package config

//go:generate go test -run ^TestGenerated$ -update .
