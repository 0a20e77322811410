package ipvs

// Option changes how Open opens a client.
type Option func(*options)

type options struct {
	netns int // descriptor; -1 for the caller's
}

// WithNetNS makes the client work in the network namespace of fd, which must
// stay open until Open returns. Without it, the client works in the namespace
// of the thread that calls Open. Either way it stays there.
//
// Entering another namespace needs CAP_SYS_ADMIN.
func WithNetNS(fd int) Option {
	return func(o *options) { o.netns = fd }
}
