package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// AdminModes are the modes of an Admin.
var AdminModes = []string{"none", "drain", "disable"}

// MaxAdminTime bounds the times of an AdminRequest.
const MaxAdminTime = 366 * 24 * time.Hour

const maxAdminSeconds = float64(MaxAdminTime / time.Second)

// Admin is what an operator said of a real server.
type Admin struct {
	// Mode is "none", "drain" for weight 0, or "disable" for a server that is not
	// in the table and still checked.
	Mode string `json:"mode"`
	// Weight takes the place of the configured weight; nil for none.
	Weight *uint32 `json:"weight,omitempty"`
	// RampSeconds is what is left of the way to Weight.
	RampSeconds float64 `json:"ramp_seconds,omitempty"`
	// By is who said it last, Since when.
	By    string    `json:"by,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Deadline is when a drain should be done. It changes nothing by itself.
	Deadline time.Time `json:"deadline,omitzero"`
}

// AdminRequest is the body of PUT …/admin. What is left out stays as it is.
type AdminRequest struct {
	// Mode is one of AdminModes; empty leaves it.
	Mode string `json:"mode,omitempty"`
	// Weight, 0 to 65535, takes the place of the configured weight; ResetWeight
	// gives that back instead.
	Weight      *uint32 `json:"weight,omitempty"`
	ResetWeight bool    `json:"reset_weight,omitempty"`
	// OverSeconds is how long the weight takes to get there; 0 is at once.
	OverSeconds float64 `json:"over_seconds,omitempty"`
	// DeadlineSeconds is when a drain should be done, from now; 0 for never.
	DeadlineSeconds float64 `json:"deadline_seconds,omitempty"`
}

// validate says what is wrong with a request.
func (r AdminRequest) validate() error {
	seconds := func(what string, s float64) error {
		if !(s >= 0 && s <= maxAdminSeconds) { // also NaN
			return fmt.Errorf("%s: want 0 to %.0f, got %v", what, maxAdminSeconds, s)
		}
		return nil
	}
	switch {
	case r.Mode != "" && !slices.Contains(AdminModes, r.Mode):
		return fmt.Errorf("mode: want %s, got %q", strings.Join(AdminModes, ", "), r.Mode)
	case r.Weight != nil && *r.Weight > math.MaxUint16:
		return fmt.Errorf("weight: want 0 to %d, got %d", math.MaxUint16, *r.Weight)
	case r.Weight != nil && r.ResetWeight:
		return errors.New("weight and reset_weight exclude each other")
	case r.OverSeconds > 0 && r.Weight == nil && !r.ResetWeight:
		return errors.New("over_seconds is for a weight")
	case r.DeadlineSeconds > 0 && r.Mode != "drain":
		return errors.New("deadline_seconds is for a drain")
	case r.Mode == "" && r.Weight == nil && !r.ResetWeight:
		return errors.New("nothing to change: want a mode, a weight or reset_weight")
	}
	return errors.Join(seconds("over_seconds", r.OverSeconds), seconds("deadline_seconds", r.DeadlineSeconds))
}

// AdminTarget names real servers: those of an address, with all its ports where it
// has none, in one service or in all.
type AdminTarget struct {
	// Service is a name or a key; empty for every service.
	Service string
	// Address is that of the real servers, Port their port; HasPort is false for
	// any.
	Address netip.Addr
	Port    uint16
	HasPort bool
}

// ParseAdminTarget reads SERVICE/ADDRESS:PORT, SERVICE/ADDRESS, ADDRESS:PORT or
// ADDRESS.
func ParseAdminTarget(text string) (AdminTarget, error) {
	var t AdminTarget
	server := text
	if i := strings.LastIndexByte(text, '/'); i >= 0 {
		t.Service, server = text[:i], text[i+1:]
		if t.Service == "" {
			return t, fmt.Errorf("real server %q: no virtual service before the slash", text)
		}
	}
	return t, t.parseServer(server)
}

// parseServer reads the part that names the real server.
func (t *AdminTarget) parseServer(text string) error {
	var e Endpoint
	if err := e.UnmarshalText([]byte(text)); err != nil || !e.prefix.IsSingleIP() || strings.Contains(text, "/") {
		return fmt.Errorf("real server %q: want SERVICE/ADDRESS:PORT, ADDRESS:PORT or an address: web/10.0.0.2:80, [fd00::2]:80, 10.0.0.2", text)
	}
	t.Address, t.Port, t.HasPort = e.prefix.Addr(), e.port, e.ported
	return nil
}

// server prints the part that names the real server.
func (t AdminTarget) server() string {
	if t.HasPort {
		return netip.AddrPortFrom(t.Address, t.Port).String()
	}
	return t.Address.String()
}

// String prints what ParseAdminTarget reads.
func (t AdminTarget) String() string {
	if t.Service == "" {
		return t.server()
	}
	return t.Service + "/" + t.server()
}

// Match reports whether a real server's address is meant; the service is not
// looked at.
func (t AdminTarget) Match(a netip.AddrPort) bool {
	return a.Addr().Unmap() == t.Address && (!t.HasPort || a.Port() == t.Port)
}

// AdminResult is the answer of PUT …/admin.
type AdminResult struct {
	// RealServers are those that the request named, changed or not.
	RealServers []AdminChange `json:"real_servers"`
	// Warnings are what may keep the request from having the effect that is
	// expected, and what the table refuses of other real servers and services.
	Warnings []string `json:"warnings"`
	// Errors are what could not be written down, or what the table refused of it; lbd
	// tries again.
	Errors []string `json:"errors"`
}

// AdminChange is what a request made of one real server.
type AdminChange struct {
	// Service is the name of the service, Key its identity.
	Service    string `json:"service"`
	Key        string `json:"key"`
	RealServer string `json:"real_server"`
	// Changed is false if it was so already.
	Changed bool `json:"changed"`
	// Change says in words what it is now: "drained", "weight 3 -> 5 over 1m0s".
	Change string `json:"change"`
	// State, Reason and Weight are those after the request, as in RealServer.
	State  string `json:"state"`
	Reason string `json:"reason"`
	Weight uint32 `json:"weight"`
	// ActiveConnections and InactiveConnections are those of the last reading.
	ActiveConnections   uint32 `json:"active_connections"`
	InactiveConnections uint32 `json:"inactive_connections"`
	Admin               Admin  `json:"admin"`
}

func (r AdminResult) fill() AdminResult {
	r.RealServers = list(r.RealServers)
	r.Warnings = list(r.Warnings)
	r.Errors = list(r.Errors)
	return r
}

// setAdmin serves both forms of PUT …/admin.
func (s *Server) setAdmin(r *http.Request) (any, error) {
	t := AdminTarget{Service: r.PathValue("name")}
	if err := t.parseServer(r.PathValue("server")); err != nil {
		return nil, errorf(http.StatusBadRequest, "%w", err)
	}
	var req AdminRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if err := req.validate(); err != nil {
		return nil, errorf(http.StatusBadRequest, "%w", err)
	}
	peer, _ := peerFrom(r.Context())
	v, err := s.backend.SetAdmin(r.Context(), t, req, peer)
	return v.fill(), err
}
