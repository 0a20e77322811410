// Package stream is the TCP connection of a probe: made by healthcheck.Via, ended
// by the probe's context, secured on demand, and closed in a way that no server
// logs as an error.
//
//	c, err := stream.Dial(ctx, via, env, target)
//	…
//	defer c.Close()
//	state, err := c.StartTLS(ctx, config)
//	…
//	err = c.Finish(ctx)
package stream
