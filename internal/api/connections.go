package api

import (
	"fmt"
	"slices"
	"strings"
)

// Connection is a line of the answer of GET /v1/connections: a connection, or a
// template of persistence.
type Connection struct {
	// Service is the name of the virtual service, its key where it has none. It is
	// empty for a service that is gone, and where several firewall mark services
	// have the real server: the table does not tell the mark.
	Service string `json:"service,omitempty"`
	// Protocol is IP for a template of a firewall mark service.
	Protocol string `json:"protocol"`
	// Client has port 0, and an address masked by the service's netmask, in a
	// template.
	Client string `json:"client"`
	// Virtual is the address that the client used; the service's key in a template
	// of a firewall mark service.
	Virtual    string `json:"virtual"`
	RealServer string `json:"real_server"`
	// State is the kernel's name: one of ConnectionStates.
	State string `json:"state"`
	// ExpiresSeconds is what is left, unless a packet comes.
	ExpiresSeconds int  `json:"expires_seconds"`
	Template       bool `json:"template"`
	// PersistenceEngine and PersistenceData are set where the service has an
	// engine. The data are as a client sent them.
	PersistenceEngine string `json:"persistence_engine,omitempty"`
	PersistenceData   string `json:"persistence_data,omitempty"`
}

// ConnectionStates are the kernel's names of states: of TCP, UDP and SCTP, of
// templates, and of the rest (tcp_state_name_table and its likes in
// net/netfilter/ipvs/ip_vs_proto*.c).
var ConnectionStates = []string{
	"NONE", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "SYNACK",
	"UDP",
	"INIT1", "INIT", "C-SENT", "C-REPLIED", "C-WAIT", "COOKIE", "C-ECHOED", "S-SENT", "S-RECEIVED", "S-ACK-SENT", "REJECTED", "CLOSED",
	"ASSURED",
	"ERR!", // of a protocol without states
}

// ConnectionState is one of ConnectionStates; empty for any.
type ConnectionState string

// MarshalText implements encoding.TextMarshaler.
func (s ConnectionState) MarshalText() ([]byte, error) { return []byte(s), nil }

// UnmarshalText accepts the states in upper or lower case.
func (s *ConnectionState) UnmarshalText(b []byte) error {
	name := strings.ToUpper(string(b))
	if !slices.Contains(ConnectionStates, name) {
		return fmt.Errorf("want a state: %s", strings.Join(ConnectionStates, " "))
	}
	*s = ConnectionState(name)
	return nil
}

// ConnectionQuery says which connections are wanted: those that match each field.
// The zero value is all.
type ConnectionQuery struct {
	// Service is a name or a key. Of a firewall mark service all connections match
	// whose real server is one of its, and whose virtual address is no other
	// service's.
	Service        string
	Client, Server Endpoint
	State          ConnectionState
}
