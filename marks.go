package locker

import "github.com/fencelock/locker/driver"

// mark is what this Locker knows of one key's tokens (R10).
type mark struct {
	// token is the last one granted to this Locker or seen as a holder's, and attempt is
	// whose it was.
	token   Token
	attempt driver.Attempt
	// floor is set by AcceptTokenReset and carried by every later attempt until a
	// greater token is granted.
	floor Token
}

// admits reports whether a grant may follow the mark. The attempt's own token, seen
// before, is no regression.
func (m mark) admits(t Token, a driver.Attempt) bool {
	return t > m.token || (t == m.token && a == m.attempt)
}

// saw raises the mark.
func (m *mark) saw(t Token, a driver.Attempt) {
	if t > m.token && t <= driver.MaxToken { // what cannot be a token is not believed
		m.token, m.attempt = t, a
	}
}

// granted is saw for a grant of this Locker's own, which also settles a floor.
func (m *mark) granted(t Token, a driver.Attempt) {
	m.saw(t, a)
	if t > m.floor {
		m.floor = 0
	}
}

// reset forgets the token but keeps it as a floor.
func (m *mark) reset() {
	m.floor = max(m.floor, m.token)
	m.token, m.attempt = 0, driver.Attempt{}
}

// keptMarks is how many keys that are not in use here keep their mark.
const keptMarks = 64 << 10

// marks keeps the marks of keys that are not in use, two generations of them: when the
// younger is full, the older is forgotten. Between keptMarks and twice as many of the
// most recently used survive.
type marks struct{ young, old map[string]mark }

// take removes and returns a key's mark.
func (m *marks) take(key string) mark {
	if k, ok := m.young[key]; ok {
		delete(m.young, key)
		return k
	}
	k := m.old[key]
	delete(m.old, key)
	return k
}

// put keeps a key's mark.
func (m *marks) put(key string, k mark) {
	if k == (mark{}) {
		return
	}
	if m.young == nil {
		m.young = make(map[string]mark)
	}
	if len(m.young) >= keptMarks {
		m.young, m.old = make(map[string]mark), m.young
	}
	m.young[key] = k
}

// withMark changes a key's mark, wherever it is kept. c.mu is held.
func (c *core) withMark(key string, change func(*mark)) {
	if ks := c.keys[key]; ks != nil {
		change(&ks.mark)
		return
	}
	k := c.marks.take(key)
	change(&k)
	c.marks.put(key, k)
}
