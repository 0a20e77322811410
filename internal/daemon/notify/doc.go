// Package notify tells events to the programs and web servers that operators name
// in notify.
//
//	set := notify.New(log, reads)
//	set.Change(config.Hooks)  // at the start and by each reload
//	set.Tell(event)           // from any goroutine; never waits
//	set.Run(ctx, noMore)      // a goroutine for each hook
//
// Each hook has a queue of its own and is told one thing at a time, in order. It
// holds up neither another hook nor who tells of an event. What cannot be told is
// lost, counted and logged: events that the queue has no room for, the oldest
// first; events that are older than the hook's MaxAge, which bounds the attempts of
// a webhook, too; and those that a program or a web server refused. The next
// notification that arrives says how many were lost before it, so that whoever
// counts on events knows when to look at the state instead. See
// docs/decisions/0013-notifications.md for why.
//
// These are edges, each told once. The commands of quorums, which are told the
// state that counts now, are in the package daemon.
//
// Programs run in lbd's own network namespace and need what internal/command says;
// web servers are reached from there, too, without a proxy.
package notify
