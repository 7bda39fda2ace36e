// Package redislock keeps locks in Redis or Valkey: one round trip to acquire, to be refused
// and to release, a queue that the server keeps itself, and fencing tokens.
//
// Every step is one Lua script, which Redis runs as one command (lua/*.lua, the algorithm).
// redislock.go sends them, in the order acquire, wait, renew, release, break; ear.go and
// ticket.go hear of hand-offs; look.go inspects; open.go looks at the server before anything
// is locked. docs/backends/redis.md tells the whole story.
//
// # Weaknesses
//
// Redis forgets. Unless it syncs an append-only file with every write, and nothing fails
// over, a crash loses the last grants and counters: two holders at once until the first
// one's next renewal, and tokens that start again. [driver.Info] says what was found when
// the driver was opened; require=durable-tokens refuses it. Processes that saw the greater
// token refuse the smaller one (driver.ErrTokenRegression); fresh ones cannot know.
//
// Expiry is decided by the server's wall clock. A step of it, and a failover to a server
// whose clock differs, shortens or lengthens what is held by as much.
//
// Replication is asynchronous, in Sentinel and Cluster too: a promoted replica may not know
// the latest grants. WaitReplicas makes a grant count only when that many replicas have it.
//
// A server with a maxmemory-policy other than noeviction may drop locks that are held; it is
// refused.
//
// Whoever may write to the database can delete a lock.
//
// # Waiting
//
// Waiters stand in one queue per key, in the order in which they came. The script that
// releases a lock, or that finds it expired, grants it to the first live waiter and
// publishes that; one channel per driver, and no thundering herd. A place is live while its
// waiter polls (at least every min(ttl/4, 5 s)).
//
// # URLs
//
//	redis://user@host:6379/0?ns=app            one server; rediss:// with TLS
//	redis+sentinel://host:26379?master_name=m  the server that the Sentinels name
//	redis+cluster://host:6379?addr=host2:6379  a Cluster
//
// Parameters beside the common ones: password_file; ca, cert and key (files, with TLS);
// allow_eviction=true; wait_replicas=n; tokens=counter (default) or clock-floor. Those of
// go-redis that are passed on: client_name, protocol, dial_timeout, pool_size, pool_timeout,
// min_idle_conns, max_idle_conns, max_active_conns, conn_max_idle_time, conn_max_lifetime;
// with one server db; with Sentinel db, master_name, addr and username (of the server: the
// user and password before the host are the Sentinels'); in a Cluster addr and
// max_redirects. Its retries are not: a request is never sent twice.
//
// # Errors
//
// An error reply of Redis is definite: driver.ErrUnavailable beside the redis.Error, or
// driver.ErrCorrupt where a key of the namespace is of another type. So is everything that
// went wrong before the request was written. What goes wrong later, and an error raised in
// the middle of a script, is driver.ErrAmbiguous. A counter that has reached the greatest
// token is driver.ErrTokenRegression. driver.ErrUnsupported and driver.ErrLayout come from
// opening only. Passwords are in no error.
//
// go-redis itself logs to stderr when a connection fails; redis.SetLogger changes that, for
// the whole program.
//
// # Durability
//
// Durable if the server has appendonly yes, appendfsync always and no-appendfsync-on-rewrite
// no, no replicas, and is neither found through Sentinel nor a Cluster. Best-effort
// otherwise, and where CONFIG may not be read.
//
// # What stays
//
// One counter for each of 256 buckets, and the namespace record. A key that nobody holds and
// nobody waits for leaves nothing.
//
// # Versions
//
// Redis 7.0 or later, and Valkey. Tested with those that docs/backends/redis.md lists.
package redislock
