package conformance

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Child is another process that holds locks.
type Child struct {
	c     *C
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // its output is at an end

	mu      sync.Mutex
	n       int
	waiting map[int]chan reply
	events  map[string]chan reply // by event
	beliefs map[driver.Token]*belief
	tokens  []driver.Token // of the grants that it told of by itself
}

// Child starts a child, with a Locker of its own.
func (c *C) Child(name string) *Child {
	cmd, err := c.h.Child(c.Ctx)
	if err != nil {
		c.Setupf("make child %s: %v", name, err)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, childVariable+"=1")
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	ch := &Child{
		c: c, name: name, cmd: cmd, ended: make(chan struct{}), waiting: map[int]chan reply{},
		events: map[string]chan reply{}, beliefs: map[driver.Token]*belief{},
	}
	for _, e := range []string{"done", "checked", "write", "granted"} {
		ch.events[e] = make(chan reply, 10_000)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		ch.stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.Setupf("start child %s: %v", name, err)
	}
	c.onClose(ch.end)
	go ch.read(out)
	if r := ch.do(command{Do: "open", Name: name, TTL: c.T}); r.err() != nil {
		c.Setupf("child %s opens a client: %v", name, r.err())
	}
	return ch
}

// read sorts what the child tells, until its end.
func (ch *Child) read(out io.Reader) {
	defer close(ch.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r reply
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // its testing package's own words
		}
		ch.mu.Lock()
		switch {
		case r.Event == "sure":
			if b := ch.beliefs[r.Token]; b != nil {
				b.saw(ch.c.History.Boot(r.Before))
			}
		case r.Event != "":
			if r.Event == "granted" {
				ch.tokens = append(ch.tokens, r.Token)
				ch.beliefs[r.Token] = ch.c.believes(r.Key, ch.name, r.Token, ch.c.History.Boot(r.After))
			}
			select {
			case ch.events[r.Event] <- r:
			default: // nobody wants so many
			}
		default:
			if w := ch.waiting[r.N]; w != nil {
				w <- r
				delete(ch.waiting, r.N)
			}
		}
		ch.mu.Unlock()
	}
}

// send gives a command, whose answer comes later.
func (ch *Child) send(cmd command) <-chan reply {
	answer := make(chan reply, 1)
	ch.mu.Lock()
	ch.n++
	cmd.N = ch.n
	ch.waiting[cmd.N] = answer
	b, err := json.Marshal(cmd)
	if err == nil {
		_, err = ch.stdin.Write(append(b, '\n'))
	}
	ch.mu.Unlock()
	if err != nil {
		ch.c.Setupf("tell child %s: %v", ch.name, err)
	}
	return answer
}

func (ch *Child) do(cmd command) reply { return ch.answer(ch.send(cmd)) }

func (ch *Child) answer(from <-chan reply) reply {
	select {
	case r := <-from:
		return r
	case <-ch.ended:
		select {
		case r := <-from:
			return r
		default:
		}
		ch.c.Setupf("child %s ended", ch.name)
	case <-ch.c.Ctx.Done():
		ch.c.alive()
	}
	return reply{}
}

// event waits for something that the child tells by itself.
func (ch *Child) event(what string, within time.Duration) (reply, bool) {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case r := <-ch.events[what]:
		return r, true
	case <-t.C:
	case <-ch.c.Ctx.Done():
		ch.c.alive()
	}
	return reply{}, false
}

// granted returns the tokens of all grants that the child has told of by itself, in order.
func (ch *Child) granted() []driver.Token {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.Clone(ch.tokens)
}

// held is a lock that a child has.
type held struct {
	token      driver.Token
	begun, got time.Duration // on the recorder's clock
}

// acquire makes the child acquire a key that is free, or waits for it.
func (ch *Child) acquire(key string) held {
	r := ch.do(command{Do: "acquire", Key: key, Wait: ch.c.Times(10)})
	if err := r.err(); err != nil {
		ch.c.fail(ByRule, soft(err), "child %s waited for %q: got %v, want it", ch.name, key, err)
	}
	h := held{r.Token, ch.c.History.Boot(r.Before), ch.c.History.Boot(r.After)}
	ch.mu.Lock()
	ch.beliefs[r.Token] = ch.c.believes(key, ch.name, r.Token, h.got)
	ch.mu.Unlock()
	return h
}

// errOf asks the child's lease for its Err, and notes the belief.
func (ch *Child) errOf(key string) (reply, error) {
	r := ch.do(command{Do: "err", Key: key})
	err := r.err()
	if err == nil {
		ch.mu.Lock()
		if b := ch.beliefs[r.Token]; b != nil {
			b.saw(ch.c.History.Boot(r.Before))
		}
		ch.mu.Unlock()
	}
	return r, err
}

// signal stops, continues or kills the child.
func (ch *Child) signal(s os.Signal) {
	if err := ch.cmd.Process.Signal(s); err != nil {
		ch.c.Setupf("send %v to child %s: %v", s, ch.name, err)
	}
}

// kill ends the child without any warning, and returns when.
func (ch *Child) kill() time.Duration {
	at := ch.c.History.Now()
	_ = ch.cmd.Process.Kill()
	<-ch.ended
	_ = ch.cmd.Wait()
	return at
}

// end ends the child, however it is.
func (ch *Child) end() {
	_ = ch.cmd.Process.Kill()
	<-ch.ended
	_ = ch.cmd.Wait()
}
