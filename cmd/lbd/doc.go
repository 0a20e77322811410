// Lbd is a layer-4 load balancer daemon: it keeps the virtual services of
// lbd.yaml in the kernel's IPVS table and takes the weight of real servers that
// fail their checks. See lbd(8).
package main
