package healthcheck

import "net"

// CloseAbort closes a connection, and resets the TCP connection below it, if
// there is one: nobody is left in TIME_WAIT, whose 60 s would eat up the local
// ports, and connection tracking forgets it after 10 s instead of 120 s. It is for
// a checker that has what it needs, where the protocol has no polite end. It finds
// what is below by the method NetConn, as that of *tls.Conn.
func CloseAbort(c net.Conn) error {
	for below := c; below != nil; {
		if t, ok := below.(interface{ SetLinger(int) error }); ok {
			// An error says that it is closed already.
			_ = t.SetLinger(0)
			break
		}
		wrap, ok := below.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		below = wrap.NetConn()
	}
	return c.Close()
}
