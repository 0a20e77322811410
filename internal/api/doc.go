// Package api is the control API of lbd: HTTP with JSON on a Unix socket.
//
// It holds the types of every request and answer, the server that the daemon
// runs and the client that ipvsctl uses. openapi.yaml describes it.
package api
