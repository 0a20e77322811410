// Package expect says what the answer of a real server must contain.
//
// An Expect is plain data. Compile turns it into a Matcher, which judges an
// answer while it comes in: it does not matter how the bytes were cut into
// packets.
//
//	m, err := expect.Expect{Kind: expect.Text, Value: "+PONG\r\n"}.Compile()
//	…
//	m.Eval([]byte("+PO"), false)     // Wait
//	m.Eval([]byte("+PONG\r\n"), false) // Met
//
// The package does no I/O and needs no privilege.
package expect
