// Package overhead finds out how the running kernel weighs connections.
//
// The kernel changed in 2026 what lc, wlc, lblc and lblcr compare, in stable
// releases too, so a version number does not tell. Probe asks the kernel itself:
// in a network namespace of its own it makes a service and three connections,
// and looks where the third one went.
//
// It needs CAP_SYS_ADMIN, CAP_NET_ADMIN and a kernel with IPVS, whose wlc module
// it loads. The host's table, links and sysctls are not touched.
//
// A network namespace with IPVS ends after each Probe. Package ipvs tells what
// that means for hosts that have not loaded ip_vs_lblc and ip_vs_lblcr.
package overhead
