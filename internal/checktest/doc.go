// Package checktest has what tests of checks need: servers that misbehave in each
// of the ways that probes meet, a network with targets that nothing reaches, and
// a count of what failed checks leave behind.
//
//	lab := checktest.NewLab(t)
//	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:25"), checktest.Hang)
//	_, err := checktest.Run(t, m, lab.Env(), "10.0.0.2:25", 100*time.Millisecond)
//
// The package is for tests, never for lbd.
package checktest
