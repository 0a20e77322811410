package bench

import (
	"bytes"
	"fmt"
)

// Memory returns a figure of /proc/PID/status, such as VmRSS, in kB.
func Memory(status []byte, field string) (int, error) {
	for line := range bytes.Lines(status) {
		var kb int
		if n, _ := fmt.Sscanf(string(line), field+": %d kB", &kb); n == 1 {
			return kb, nil
		}
	}
	return 0, fmt.Errorf("no %s in %q", field, status)
}
