// Package api is the control API of lbd: HTTP with JSON on a Unix socket.
//
// It holds the types of every request and answer, the server that the daemon
// runs and the client that ipvsctl uses. openapi.json describes it, and a test
// holds the two together.
//
// Every answer with another status than 200 carries an Error. Lists and maps
// are never null. Writes are idempotent and return what changed. A later lbd
// may add fields, so a client must ignore those that it does not know; the
// server refuses them.
package api
