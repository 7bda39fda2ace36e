// Package netfault is a network that fails on purpose, inside the test's own process: a
// proxy between one client and its server.
//
// [Proxy] knows streams of bytes and fits any protocol over TCP. [HTTP] knows requests and
// replies, and can pick some of them: by method, by path, by query. Both implement
// conformance.Network, keep one address while the server behind them moves, can be
// changed while they run, and count what passes.
//
// # Weaknesses
//
// A proxy ends the client's connections itself. A client that cannot connect is told by a
// reset of a connection that it had already; the refusal of a connect, and lost or
// reordered packets, cannot be shown. Bytes that were swallowed stay lost, where real TCP
// would send them again: a connection with such a gap is reset at the next change.
//
// A turn is what the client sends up to the server's next bytes. Where a client sends
// requests without awaiting replies, or the server speaks unasked, several of them are one
// turn, or bytes belong to the turn before.
//
// # Chance
//
// What is left to chance is a pure function of the seed, the connection and the turn (or
// the request's number), so the String of a proxy is enough to draw the same again; the
// order in which a client opens its connections is the client's.
package netfault
