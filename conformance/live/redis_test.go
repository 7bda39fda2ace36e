package live

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"
)

// redises are the two servers that speak one protocol.
var redises = map[string]func(testing.TB, RedisOptions) *RedisServer{"redis": Redis, "valkey": Valkey}

func TestRedisServer(t *testing.T) {
	t.Parallel()
	for name, start := range redises {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, RedisOptions{})
			wantRedis(t, s, "OK", "SET", "k", "v")
			wantRedis(t, s, "v", "GET", "k")
			if s.secure == nil {
				client := &RedisServer{adopted: true, login: s.login, secure: &tls.Config{ServerName: "localhost"}}
				wantRedisFinal(t, "TLS that is not there", client, s.Addr(), "use the scheme without it")
			}
			testPause(t, s.Server, func(ctx context.Context) error {
				_, err := s.Do(ctx, "GET", "k")
				return err
			})
			if !s.Ours() {
				return
			}
			v, _ := s.Do(t.Context(), "INFO", "server")
			if text, _ := v.(string); !strings.Contains(text, name+"_version:8.") {
				t.Errorf("INFO server of %s: got %s, want version 8", name, text)
			}
		})
	}
}

// What a server keeps over a kill is what it was asked to persist.
func TestRedisPersistence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		p                    RedisPersistence
		afterStop, afterKill any
	}{
		"none":     {RedisNone, nil, nil},
		"snapshot": {RedisSnapshot, "v", "v"}, // the stop wrote it down, before the kill
		"everysec": {RedisEverySec, "v", "v"},
		"always":   {RedisAlways, "v", "v"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Redis(t, RedisOptions{Persistence: want.p, Own: true})
			wantRedis(t, s, "OK", "SET", "k", "v")
			before := s.Addr()
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantRedis(t, s, want.afterStop, "GET", "k")
			wantRedis(t, s, "OK", "SET", "late", "v")
			if err := s.Crash(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantRedis(t, s, want.afterKill, "GET", "k")
			switch want.p {
			case RedisNone, RedisSnapshot:
				wantRedis(t, s, nil, "GET", "late")
			case RedisAlways:
				wantRedis(t, s, "v", "GET", "late")
			}
			t.Logf("address before %s, after %s", before, s.Addr())
		})
	}
}

func TestRedisSecured(t *testing.T) {
	t.Parallel()
	s := Redis(t, RedisOptions{Password: "secret word", TLS: true, Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	wantRedis(t, s, "PONG", "PING")
	if got, want := s.URL(), "rediss://:secret%20word@"+s.Addr()+"/0"; got != want {
		t.Errorf("URL: got %s, want %s", got, want)
	}
	v, err := s.Do(t.Context(), "CONFIG", "GET", "maxmemory-policy")
	if got, _ := v.([]any); err != nil || len(got) != 2 || got[1] != "allkeys-lru" {
		t.Errorf("policy: got %v, %v", v, err)
	}
	for name, as := range map[string]struct {
		client *RedisServer
		todo   string
	}{
		"no password":      {&RedisServer{adopted: true, secure: s.secure}, "correct the user and the password"},
		"a wrong password": {&RedisServer{adopted: true, secure: s.secure, login: redisLogin{password: "wrong"}}, "correct the user and the password"},
		"a wrong user":     {&RedisServer{adopted: true, secure: s.secure, login: redisLogin{"me", "secret word", ""}}, "correct the user and the password"},
		"no such database": {&RedisServer{adopted: true, secure: s.secure, login: redisLogin{"", "secret word", "77"}}, "DB index"},
		"no TLS":           {&RedisServer{adopted: true, login: s.login}, "use the scheme rediss"},
	} {
		wantRedisFinal(t, name, as.client, s.Addr(), as.todo)
	}
}

// wantRedisFinal wants that from a server that answers, which a busy machine may need some attempts for.
func wantRedisFinal(t *testing.T, name string, client *RedisServer, at, todo string) {
	t.Helper()
	var err error
	eventually(t, func(ctx context.Context) bool {
		once, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = client.ping(once, at)
		var final refusal
		return err == nil || errors.As(err, &final)
	})
	wantFinal(t, name, err, todo)
}

// wantFinal wants an error that ends the wait for a server of the environment.
func wantFinal(t *testing.T, name string, err error, todo string) {
	t.Helper()
	var final refusal
	if !errors.As(err, &final) || !strings.Contains(err.Error(), todo) {
		t.Errorf("%s: got %v, want a refusal with %q", name, err, todo)
	}
}

// A promoted replica has what reached it, and nothing of what did not.
func TestRedisPromotion(t *testing.T) {
	t.Parallel()
	primary := Redis(t, RedisOptions{Persistence: RedisAlways})
	replica := Redis(t, RedisOptions{ReplicaOf: primary})
	wantRedis(t, primary, "OK", "SET", "k", "v")
	eventually(t, func(ctx context.Context) bool {
		v, _ := replica.Do(ctx, "GET", "k")
		return v == "v"
	})
	if _, err := replica.Do(t.Context(), "SET", "k", "w"); err == nil {
		t.Error("a replica accepts a write")
	}

	if err := replica.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRedis(t, primary, "OK", "SET", "lost", "v")
	if err := primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRedis(t, replica, "v", "GET", "k")
	wantRedis(t, replica, nil, "GET", "lost")
	wantRedis(t, replica, "OK", "SET", "k", "w")
}

func wantRedis(t *testing.T, s *RedisServer, want any, args ...string) {
	t.Helper()
	got, err := s.Do(t.Context(), args...)
	if err != nil || got != want {
		t.Errorf("%s: %s: got %v, %v, want %v", s.Name(), strings.Join(args, " "), got, err, want)
	}
}
