package config

// nodeKind is the shape of a node.
type nodeKind uint8

const (
	scalar nodeKind = iota
	mapping
	sequence
)

// node is a piece of the file with its position. A mapping's children are its
// keys and values by turns.
type node struct {
	kind nodeKind
	// quoted scalars are strings whatever they look like.
	quoted    bool
	line, col int
	value     string
	// first, last and next link the children of a mapping or a sequence.
	first, last, next *node
}

// add appends a child.
func (n *node) add(child *node) {
	if n.last == nil {
		n.first = child
	} else {
		n.last.next = child
	}
	n.last = child
}

// isNull says whether the file gives no value here.
func (n *node) isNull() bool {
	if n.kind != scalar || n.quoted {
		return false
	}
	switch n.value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// nodes hands out nodes from chunks: a file of 20,000 real servers has some
// 200,000 of them.
type nodes struct{ chunk []node }

func (a *nodes) make(kind nodeKind, line, col int, value string) *node {
	if len(a.chunk) == 0 {
		a.chunk = make([]node, 1024)
	}
	n := &a.chunk[0]
	a.chunk = a.chunk[1:]
	n.kind, n.line, n.col, n.value = kind, line, col, value
	return n
}
