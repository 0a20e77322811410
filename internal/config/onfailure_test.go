package config

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// auto goes by protocol, scheduler and persistence, and by whether the file lets
// persistent clients come back to weight 0; what the file says itself stays.
func TestOnFailure(t *testing.T) {
	const (
		open      = "auto: its open connections may go on"
		templates = open + "; expire_quiescent_template is 1, so that its persistent clients leave"
		stays     = "auto: at weight 0 it would keep its persistent clients, as expire_quiescent_template is 0"
		udp       = "auto: at weight 0 it would keep the UDP clients that go on sending"
		file      = "as the file says"
	)
	for _, tt := range []struct {
		service, sysctls string
		want             OnFailure
		reason           string
		template         int // 0, 1, or -1 for as the kernel has it
		warning          string
	}{
		{"address: 192.0.2.10:1", "", OnFailureQuiesce, open, -1, ""},
		{"address: 192.0.2.10:1, protocol: sctp", "", OnFailureQuiesce, open, -1, ""},
		{"address: 192.0.2.10:1, protocol: udp", "", OnFailureRemove, udp, -1, ""},
		{"fwmark: 1", "", OnFailureQuiesce, open + ", as may UDP flows", -1, ""},
		{"address: 192.0.2.10:1, scheduler: dh", "", OnFailureRemove, "auto: scheduler dh would refuse its clients at weight 0", -1, ""},
		{"fwmark: 1, scheduler: mh", "", OnFailureRemove, "auto: scheduler mh would refuse its clients at weight 0", -1, ""},
		{"address: 192.0.2.10:1, scheduler: mh, scheduler_flags: [mh-fallback]", "", OnFailureQuiesce, open, -1, ""},
		{"address: 192.0.2.10:1, persistence: {}", "", OnFailureQuiesce, templates, 1, ""},
		{"address: 192.0.2.10:1, persistence: {}", "expire_quiescent_template: 1", OnFailureQuiesce, templates, 1, ""},
		{"address: 192.0.2.10:1, persistence: {}", "expire_quiescent_template: 0", OnFailureRemove, stays, 0, ""},
		{"fwmark: 1, persistence: {}", "expire_quiescent_template: 0", OnFailureRemove, stays, 0, ""},
		{"address: 192.0.2.10:1, persistence: {}, scheduler: sh", "", OnFailureRemove, "auto: scheduler sh would refuse its clients at weight 0", 1, ""},
		{"address: 192.0.2.10:1, persistence: {}, protocol: udp", "", OnFailureRemove, udp, 1, ""},
		{"address: 192.0.2.10:1, persistence: {}, protocol: udp", "expire_quiescent_template: 0", OnFailureRemove, udp, 0, ""},
		{"address: 192.0.2.10:1, persistence: {}, on_failure: remove", "", OnFailureRemove, file, 1, ""},
		{"address: 192.0.2.10:1, persistence: {}, on_failure: quiesce", "", OnFailureQuiesce, file, 1, ""},
		{"address: 192.0.2.10:1, persistence: {}, on_failure: quiesce", "expire_quiescent_template: 0", OnFailureQuiesce, file, 0, "their clients would stay on them"},
		{"address: 192.0.2.10:1, protocol: udp, on_failure: quiesce", "", OnFailureQuiesce, file, -1, "stays on a failed real server"},
		{"address: 192.0.2.10:1, scheduler: sh, on_failure: quiesce", "", OnFailureQuiesce, file, -1, "are refused"},
		{"address: 192.0.2.10:1, protocol: udp", "expire_nodest_conn: 0", OnFailureRemove, udp, -1, "would go nowhere"},
	} {
		t.Run(tt.service+" "+tt.sysctls, func(t *testing.T) {
			text := fmt.Sprintf("virtual_services: [{%s, real_servers: [{address: 10.0.0.2}]}]\nsysctls: {%s}\n", tt.service, tt.sysctls)
			c, err := Parse("lbd.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			rs := c.VirtualServices[0].RealServers[0]
			if rs.OnFailure != tt.want || rs.OnFailureReason != tt.reason {
				t.Errorf("want %s, %s; got %s, %s", tt.want, tt.reason, rs.OnFailure, rs.OnFailureReason)
			}
			want := map[string]int{"expire_nodest_conn": 1}
			if strings.Contains(tt.sysctls, "nodest") {
				want["expire_nodest_conn"] = 0
			}
			if tt.template >= 0 {
				want["expire_quiescent_template"] = tt.template
			}
			if !maps.Equal(want, c.Sysctls) {
				t.Errorf("sysctls: want %v, got %v", want, c.Sysctls)
			}
			if tt.warning == "" && len(c.Warnings) > 0 || tt.warning != "" && (len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], tt.warning)) {
				t.Errorf("warnings: want %q, got %q", tt.warning, c.Warnings)
			}
		})
	}
}
