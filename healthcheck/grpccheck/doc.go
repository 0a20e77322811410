// Package grpccheck checks real servers by gRPC's health protocol,
// grpc.health.v1.Health/Check, with and without TLS.
//
//	c := grpccheck.Check{Service: "shop.Orders"}
//	checker, err := c.NewChecker(netip.MustParseAddrPort("10.0.0.2:50051"), healthcheck.Env{})
//
// A server is healthy when it says SERVING. The protocol is one message each way
// (grpc/grpc-proto, grpc/health/v1/health.proto) over HTTP/2, as described in
// grpc/grpc, doc/PROTOCOL-HTTP2.md: written here, over net/http.
package grpccheck
