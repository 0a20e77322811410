package userspace

import "testing"

// TestKernelHazards runs on the VM's kernel, with nft's own queue expression,
// what depends on how the kernel hands packets over.
func TestKernelHazards(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"retransmit":          TestNetnsRetransmit,
		"first segments":      TestNetnsHandshakesRepeated,
		"datagrams at once":   TestNetnsDatagramsAtOnce,
		"fragments":           TestNetnsFragments,
		"extension headers":   TestNetnsExtensionHeaders,
		"path MTU":            TestNetnsPathMTUOfServer,
		"error of the client": TestNetnsErrorOfClient,
		"remove with a SYN":   TestNetnsRemoveWithSYN,
		"same port":           TestNetnsSamePort,
		"same network":        TestNetnsSameNetwork,
		"edit while queued":   TestNetnsEditWhileQueued,
		"quiet ends":          TestNetnsQuietEnds,
	} {
		t.Run(name, test)
	}
}
