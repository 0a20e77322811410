// Package netns calls functions in other network namespaces, given by name, path or
// descriptor, and in fresh ones. It needs CAP_SYS_ADMIN to enter one that the thread
// is not in already, and to make one.
package netns
