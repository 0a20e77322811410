package api

import (
	"cmp"
	"slices"
)

// An empty list is [] in JSON and not null, so that a script can walk every
// answer without asking first. The fill methods return a copy without nil lists:
// the original may be a snapshot that others read.

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (s Status) fill() Status {
	s.Hooks, s.Foreign = list(s.Hooks), list(s.Foreign)
	s.Warnings = list(s.Warnings)
	if s.Sysctls == nil {
		s.Sysctls = map[string]int{}
	}
	return s
}

func (s Service) fill() Service {
	s.Flags = list(s.Flags)
	s.RealServers = list(slices.Clone(s.RealServers))
	for i := range s.RealServers {
		s.RealServers[i].Checks = list(s.RealServers[i].Checks)
		s.RealServers[i].Admin.Mode = cmp.Or(s.RealServers[i].Admin.Mode, "none")
	}
	return s
}

func fillServices(services []Service) []Service {
	out := make([]Service, len(services))
	for i, s := range services {
		out[i] = s.fill()
	}
	return out
}

func (r CheckReport) fill() CheckReport {
	r.Errors = list(r.Errors)
	r.HostErrors = list(r.HostErrors)
	r.Warnings = list(r.Warnings)
	return r
}

func (p Plan) fill() Plan {
	p.Errors = list(p.Errors)
	p.Warnings = list(p.Warnings)
	p.Steps = list(p.Steps)
	return p
}

func (r ReloadResult) fill() ReloadResult {
	r.Errors = list(r.Errors)
	r.Warnings = list(r.Warnings)
	return r
}

func (r ReconcileResult) fill() ReconcileResult {
	r.Steps = list(r.Steps)
	r.Errors = list(r.Errors)
	return r
}
