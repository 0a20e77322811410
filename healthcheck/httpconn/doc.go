// Package httpconn has what checks over HTTP share: HTTP/2 on one connection.
//
//	client, err := httpconn.NewHTTP2(ctx, conn)
//	…
//	defer client.Close()
//	answer, err := client.RoundTrip(request)
//	if err != nil {
//		return httpconn.Explain(err)
//	}
package httpconn
