package command

import "sync"

// maxOutput is how much of the output is kept.
const maxOutput = 4096

// output keeps the beginning of what is written to it. It takes everything, so
// that a program that writes a lot is not held up.
type output struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer and never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p[:min(len(p), maxOutput-len(o.b))]...)
	return len(p), nil
}

// kept returns what has been kept so far.
func (o *output) kept() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b[:len(o.b):len(o.b)]
}
