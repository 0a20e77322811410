package config

// hookEvents are the kinds of events that a hook can be told of; internal/api has
// what they mean.
var hookEvents = []string{"start", "real_server", "service", "admin", "reload", "drift", "sync", "warning"}

// hookKeys are the keys that all hooks have.
var hookKeys = []key{
	{name: "events", kind: kindWords, enum: hookEvents, example: "[real_server, service]",
		doc: "Kinds of events that it is told of, as ipvsctl events -o json names them; left out, all. start is a start of lbd, real_server and service are changes of their state, once the table has them, admin is what an operator said, reload a reload, drift a repair of what somebody else changed, sync that the table stops or begins to follow the configuration, warning that checks of a real server warn of something, such as a certificate that expires soon, or no more."},
	{name: "timeout", kind: kindDuration, def: "10s", min: 100 * millisecond, max: 300 * second,
		doc: "How long one attempt may take. A program gets SIGTERM then, and SIGKILL 250 ms later, with its process group."},
	{name: "max_age", kind: kindDuration, def: "5m", min: second, max: 24 * hour,
		doc: "How old an event may be when its turn comes: one that is older is not told any more but counted as lost. It bounds how long a webhook is tried again."},
	{name: "name", kind: kindString, example: "pager",
		doc: "Name in the log and in ipvsctl status; default is the program, or the host of the URL."},
}

var execHookObject = newObject("a program of notify", []key{
	{name: "command", kind: kindArgs, required: true, example: `[/usr/local/sbin/page, "--quiet"]`,
		doc: "Absolute path of the program and its arguments; there is no shell. It is run once for each event, one at a time and in order, with LBD_EVENT (the kind), LBD_STATE, LBD_SERVICE, LBD_KEY (the service as in TCP 192.0.2.10:80), LBD_REAL_SERVER, LBD_TEXT, LBD_REASON, LBD_BY, LBD_TIME, LBD_SEQ, LBD_LOST (the events before this one that could not be told) and LBD_JSON (the event as in the API) in its environment; what does not apply is empty. What real servers and agents say is in LBD_REASON: quote it. A program that fails is not run again for the same event. status and doctor warn of one that others than root and user can change."},
	{name: "user", kind: kindString, example: "nobody", doc: "User of the program; default is lbd's own."},
	{name: "group", kind: kindString, example: "nogroup", doc: "Group of the program; default is the user's."},
}, hookKeys)

var hookTLSObject = newObject("tls of a webhook", []key{
	{name: "server_name", kind: kindString, example: "alerts.example.com",
		doc: "Name that the certificate must be for; default is the host of the URL."},
	{name: "ca", kind: kindString, example: "/etc/lbd/ca.pem",
		doc: "File of the authorities that the certificate may be of, in PEM; default is the host's."},
	{name: "cert", kind: kindString, example: "/etc/lbd/client.pem",
		doc: "File of the certificate that lbd shows, in PEM; with key. Files are read at each load of the configuration."},
	{name: "key", kind: kindString, example: "/etc/lbd/client.key", doc: "File of the key of cert, in PEM."},
	{name: "min_version", kind: kindString, def: `"1.2"`, enum: []string{"1.2", "1.3"}, doc: "Oldest version of TLS that will do."},
})

var webhookObject = newObject("a webhook", []key{
	{name: "url", kind: kindString, required: true, example: "https://alerts.example.com/lbd",
		doc: "Where events are sent by POST, as JSON: {version: 1, host, lost, events}, with 1 to 50 events as in the API; openapi.json has it as Notification. Status 200 to 299 says that it arrived. Without an answer, and with 408, 425, 429 and 500 to 599, it is sent again after 1 s, then twice as long each time, at most a minute, until max_age; so an event may come twice, with the same seq and time. Other answers are final, redirects too: none is followed. HTTP/1.1, without a proxy. Certificates are always verified. The host may be a name. The rest of the URL is in no log or message."},
	{name: "headers", kind: kindTable, example: `{Authorization: "Bearer …"}`, doc: "Further headers by name. Their values are in no log or message."},
	{name: "tls", kind: kindObject, object: hookTLSObject, example: "{ca: /etc/lbd/ca.pem}", doc: "Options of TLS."},
}, hookKeys)

var notifyObject = newObject("notify", []key{
	{name: "exec", kind: kindList, def: "[]", off: true, object: execHookObject,
		doc: "Programs that are run for each event, at most 16. They run in lbd's own network namespace."},
	{name: "webhook", kind: kindList, def: "[]", off: true, object: webhookObject,
		doc: "Web servers that are sent events, at most 16. They are reached from lbd's own network namespace."},
})
