package netfault

import "time"

// current returns the faults that count for the turn the connection is in. Call it with
// Proxy.passing and conn.lock held.
func (c *conn) current() Faults {
	f := c.p.faults
	switch {
	case c.p.spent(c.turn.harmed, c.p.version):
		return Faults{}
	case f.From == NextTurn && c.turn.version < c.p.version,
		f.From == NewConnections && c.born < c.p.version:
		return Faults{}
	}
	if c.turn.handshake {
		f.Replies, f.OneIn, f.Copies = Harm{}, 0, false
	}
	if f.From == Now && c.turn.version < c.p.version { // a chunk may be under way
		f.Requests.Cut, f.Replies.Cut = 0, 0
	}
	return f
}

// fate is what becomes now of bytes that may have been held: a change counts for them, too.
// Behind a gap that no hole goes on with is a reset.
func (c *conn) fate(dir int) (swallow, reset bool) {
	defer c.lock()()
	switch {
	case c.sink(dir):
		return true, false
	case c.current().of(dir).Reset:
		c.harmed(dir)
		return false, true
	}
	return false, c.gap[dir]
}

// sink reports whether bytes of now fall into a hole, and notes that they did. Call it with
// Proxy.passing and conn.lock held.
func (c *conn) sink(dir int) bool {
	if !c.current().of(dir).Hole {
		return false
	}
	c.gap[dir] = true
	c.harmed(dir)
	return true
}

func (f Faults) of(dir int) Harm {
	if dir == requests {
		return f.Requests
	}
	return f.Replies
}

// judge decides what becomes of bytes that arrived.
func (c *conn) judge(dir int, b []byte) []chunk {
	c.p.passing.RLock()
	defer c.p.passing.RUnlock()
	defer c.lock()()
	c.follow(dir, b)
	f := c.current()
	if dir == requests {
		c.copy(b, f)
	}
	h := f.of(dir)
	c.turn.bytes[dir] += int64(len(b))
	c.bytes[dir] += int64(len(b))
	c.chunks[dir]++
	switch {
	case c.sink(dir): // before the delay: what is swallowed is swallowed now
		return nil
	case h.Reset, f.OneIn > 0 && dir == requests && c.turn.before, f.OneIn > 0 && dir == replies && c.turn.after:
		c.harmed(dir)
		return []chunk{{reset: true}}
	}
	due := c.arrival(dir, h)
	if over := c.beyond(dir, h, f.From); over > 0 {
		c.harmed(dir)
		return []chunk{{b: b[:max(int64(len(b))-over, 0)], due: due, reset: true}}
	}
	return []chunk{{b: b, due: due}}
}

// arrival is when bytes that arrived now are due at the other side.
func (c *conn) arrival(dir int, h Harm) time.Time {
	what := forRequestDelay
	if dir == replies {
		what = forReplyDelay
	}
	late := dice(c.p.seed).late(h, what, c.number, c.chunks[dir])
	if late > 0 {
		c.harmed(dir)
	}
	return time.Now().Add(late)
}

// beyond is how many of the bytes so far are behind the cut.
func (c *conn) beyond(dir int, h Harm, from Scope) int64 {
	if h.Cut <= 0 {
		return 0
	}
	if from == NewConnections {
		return c.bytes[dir] - h.Cut
	}
	return c.turn.bytes[dir] - h.Cut
}

// follow keeps account of turns.
func (c *conn) follow(dir int, b []byte) {
	if dir == replies {
		if c.turn.begun && !c.turn.answered {
			c.turn.answered = true
			c.p.turned()
			if copied := c.turn.copied; copied != nil {
				c.p.wg.Go(func() { c.p.replay(copied) })
			}
		}
		return
	}
	if !c.turn.begun || c.turn.answered {
		c.turn = turn{number: c.turn.number + 1, begun: true, version: c.p.version}
		c.shaking = c.shaking && c.p.handshake(c.turn.number, b)
		c.turn.handshake = c.shaking
		c.turn.before, c.turn.after = dice(c.p.seed).reset(c.p.faults.OneIn, c.number, uint64(c.turn.number))
	}
	if c.turn.handshake {
		c.shaken = append(c.shaken, b...)
	}
}

// harmed counts a turn once for each direction and change of the faults. Call it with
// Proxy.passing and conn.lock held.
func (c *conn) harmed(dir int) {
	counted, now := &c.turn.harmed, c.p.version+1
	if counted[dir] == now {
		return
	}
	first := counted[requests] != now && counted[replies] != now
	counted[dir] = now
	c.p.harm(dir, first)
}

// harm counts a harmed turn's direction, and the turn with the first of them.
func (p *Proxy) harm(dir int, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired++
	if first {
		p.harmed++
	}
	if dir == requests {
		p.counts.HarmedRequests++
	} else {
		p.counts.HarmedReplies++
	}
}

// spent reports whether the faults have harmed as many turns as they may, of which this is
// none.
func (p *Proxy) spent(counted [2]uint64, version uint64) bool {
	if p.faults.Times <= 0 || counted[requests] == version+1 || counted[replies] == version+1 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harmed >= p.faults.Times
}

func (p *Proxy) turned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Turns++
}

func (p *Proxy) passed(dir, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if dir == requests {
		p.counts.Requests += int64(n)
	} else {
		p.counts.Replies += int64(n)
	}
}
