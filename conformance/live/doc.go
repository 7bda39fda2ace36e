// Package live gives tests real servers: Redis, Valkey, Postgres, PgBouncer, etcd and an S3 gateway, each with a handle to
// pause, kill, restart and remove it. It is for tests only.
//
// # A server for a test
//
//	func TestMain(m *testing.M) { live.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		redis := live.Redis(t, live.RedisOptions{})
//		client := dial(redis.URL())
//		…
//		if err := redis.Kill(ctx); err != nil { … }
//		if err := redis.Start(ctx); err != nil { … } // answers again, at another address
//
// A server that ends by itself during a test fails the test, with its name and the end of its log.
//
// [github.com/fencelock/locker/conformance/live/netfault] is the network between a test's clients and these servers: it delays, cuts
// and loses, keeps one address while the server moves, and counts. What to copy for a new backend is
// [github.com/fencelock/locker/conformance/live/redis].
//
// # Where servers come from
//
// The first of these that there is:
//
//   - an endpoint in the environment: LOCKER_TEST_REDIS_URL, LOCKER_TEST_VALKEY_URL, LOCKER_TEST_POSTGRES_URL,
//     LOCKER_TEST_ETCD_URL, LOCKER_TEST_S3_URL or LOCKER_TEST_MINIO_URL, in the form of this repository's lock URLs. Such a
//     server has no handle: what would harm it answers [ErrNoHandle]. It serves only tests that ask for nothing special. It is
//     waited for while it is out of reach or starts; a wrong password, scheme, host or bucket fails the test at once. (The
//     password of a Postgres server is the one thing that only the client under test finds wrong.)
//   - a container of the official image, if Docker has it;
//   - a container of an image that images/build has made, if Docker has it;
//   - the official image, pulled, if its registry answers within seconds;
//   - the image of images/build, built on the spot. From nothing that takes some minutes, and goes on in the background
//     if the test cannot wait for it.
//
// The tests of this repository have run on the images of images/build alone, where no registry could be reached. Names and command
// lines of the official ones were compared with what their makers publish, and have not been tried.
//
// Docker is the one of DOCKER_HOST, and otherwise the one that testcontainers-go finds. A DOCKER_HOST that does not answer means
// that there is none, whatever else runs here.
//
// A server that cannot be had skips the test, with the reason and the way to get it; LOCKER_TEST_REQUIRE, a list such as
// "redis,etcd,postgres,s3", makes that a failure.
//
// `go test` says nothing about what a package skips or prints if it passes. What was left out is therefore also told to the
// terminal, if there is one. And it remembers a result that Docker was not there for: after starting Docker, run it with -count=1.
//
// # What is left behind
//
// Nothing: containers, networks and volumes carry the label of their run, and a process beside the test binary removes all
// of them when that one ends, however it ends. That process takes the place of the reaper of testcontainers-go, whose image would
// have to be pulled.
//
// Where both are killed, or the machine is, the next run on this host that uses the same Docker does it. That a run is dead is
// proved by a file in the user's cache folder, named after the run, which the test binary keeps locked for as long as it lives; a run
// without such a file, of another host or user or in a container that is gone, is left alone. Windows has no such locks here, and
// no such sweep.
package live
