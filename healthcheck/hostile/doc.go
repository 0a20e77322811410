// Package hostile bounds what a target can do to the probe that asks it.
//
// Conn ends with the probe's context and after so many bytes, whatever the code
// on top of it does with deadlines.
//
//	conn := hostile.Bound(ctx, conn, 1<<20)
//	defer conn.Close()
package hostile
