package ruleset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Template is what a persistent service remembers of a client.
type Template struct {
	// Service is the service's ID.
	Service uint32
	// Client is the client's address with the service's netmask applied.
	Client netip.Addr
	// Mark is the real server's.
	Mark uint32
	// Expires is what is left.
	Expires time.Duration
}

// Templates returns the templates of all services. They may be of services and
// real servers that are gone.
func (r *Rules) Templates(ctx context.Context) ([]Template, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.templates(ctx)
}

func (r *Rules) templates(ctx context.Context) ([]Template, error) {
	var all []Template
	for _, t := range r.tables {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, _, err := r.elements(t.sets[mapTemplates])
		if err != nil {
			return nil, err
		}
		for i := range list {
			if v, ok := t.template(&list[i]); ok {
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// template reads an element of mapTemplates.
func (t *table) template(e *nftables.SetElement) (Template, bool) {
	if len(e.Key) != 4+int(t.size) || len(e.Val) != 4 {
		return Template{}, false
	}
	client, ok := netip.AddrFromSlice(e.Key[4:])
	return Template{
		Service: binary.NativeEndian.Uint32(e.Key),
		Client:  client,
		Mark:    binary.NativeEndian.Uint32(e.Val),
		Expires: e.Expires,
	}, ok
}

func (v *Template) element() nftables.SetElement {
	return nftables.SetElement{Key: append(u32(v.Service), v.Client.AsSlice()...), Val: u32(v.Mark)}
}

// DeleteTemplates deletes the templates of a service, or of all where it is 0,
// that lead to one of marks, or to any where there are none. Those that expire
// meanwhile are no error.
func (r *Rules) DeleteTemplates(ctx context.Context, service uint32, marks ...uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := r.templates(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v Template) bool {
		return service != 0 && v.Service != service || len(marks) > 0 && !slices.Contains(marks, v.Mark)
	})
	return r.deleteTemplates(ctx, all)
}

// deleteTemplates deletes templates that may have expired since they were read.
func (r *Rules) deleteTemplates(ctx context.Context, list []Template) error {
	for _, t := range r.tables {
		var gone []nftables.SetElement
		for i := range list {
			if list[i].Client.BitLen() == int(t.size)*8 {
				gone = append(gone, list[i].element())
			}
		}
		if err := r.deleteElements(ctx, t.sets[mapTemplates], gone); err != nil {
			return fmt.Errorf("delete templates: %w", err)
		}
	}
	return nil
}

// deleteAll deletes elements in one transaction.
func (r *Rules) deleteAll(ctx context.Context, set *nftables.Set, list []nftables.SetElement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := inChunks(list, func(c []nftables.SetElement) error { return r.nft.SetDeleteElements(set, c) })
	if err != nil {
		return errors.Join(err, r.abandon())
	}
	return r.commit()
}

// deleteElements deletes elements that may have expired since they were read:
// then the kernel refuses all, and each half is tried alone.
func (r *Rules) deleteElements(ctx context.Context, set *nftables.Set, list []nftables.SetElement) error {
	if len(list) == 0 {
		return nil
	}
	err := r.deleteAll(ctx, set, list)
	switch {
	case !errors.Is(err, unix.ENOENT):
		return err
	case len(list) == 1:
		return nil
	}
	half := len(list) / 2
	if err := r.deleteElements(ctx, set, list[:half]); err != nil {
		return err
	}
	return r.deleteElements(ctx, set, list[half:])
}
