package netfault_test

import (
	"testing"
	"time"

	"github.com/fencelock/locker/conformance"
	"github.com/fencelock/locker/conformance/live/netfault"
)

func TestString(t *testing.T) {
	p := proxy(t, netfault.At("127.0.0.1:1"), &netfault.Options{Seed: 255})
	for want, f := range map[string]netfault.Faults{
		"sound": {},
		"requests 1s to 3s late, replies 0s to 1s late": {Requests: netfault.Harm{Delay: time.Second, Jitter: 2 * time.Second}, Replies: netfault.Harm{Jitter: time.Second}},
		"requests swallowed, replies reset":             {Requests: netfault.Harm{Hole: true}, Replies: netfault.Harm{Reset: true}},
		"replies cut after 3 bytes, from the next turn": {Replies: netfault.Harm{Cut: 3}, From: netfault.NextTurn},
		"one turn in 7 reset, on new connections":       {OneIn: 7, From: netfault.NewConnections},
		"copies 1s later, 2 times":                      {Copies: true, CopyAfter: time.Second, Times: 2},
	} {
		p.Apply(f)
		if got, want := p.String(), "netfault seed 0xff: "+want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHTTPString(t *testing.T) {
	h := httpProxy(t, site(t), &netfault.HTTPOptions{Seed: 255})
	h.Set(conformance.Delays, time.Second)
	h.Rules(netfault.Rule{}, netfault.Rule{})
	if got, want := h.String(), "netfault seed 0xff: delays 1s, 2 rules"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
