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
// would send them again: a connection with such a gap is reset at the next change, or at
// the next bytes behind the gap.
//
// A turn is what the client sends up to the server's next bytes. Where a client sends
// requests without awaiting replies, or the server speaks unasked, several of them are one
// turn, or bytes belong to the turn before.
//
// # What Proxy does
//
// What is done to bytes is decided when they reach the proxy; whether they pass, when they
// leave it. What it wrote to a socket has passed: the kernel delivers it, whatever changes.
//
//   - Delay and Jitter ([Harm]) hold bytes in one direction. They are not a slow link: bytes
//     are not late because of others' number, unless more than 1024 pieces of one direction
//     of one connection are held, as they were read: then no more are read. What is
//     held when the faults change arrives when it was due, unless a Hole or a Reset is in
//     force by then.
//   - A Hole takes bytes, and a connection's end, and tells nobody. A new connection in a
//     hole of requests stands, as the client sees it. That a peer has gone is not seen
//     either: the server keeps the connections of a client that has closed them.
//   - A Reset puts a reset (RST) in the place of bytes, at the client. The server sees an
//     ordinary end. In the direction of requests it is "lost, and the client knows", in the
//     direction of replies "applied, but the reply is lost".
//   - A Cut delivers a number of bytes, then a reset: half a request, or half a reply.
//   - OneIn resets turns at random, half of them before the server had the request and half
//     after. A turn is drawn when it begins.
//   - Copies delivers whole turns again, later than the server answered them, on a
//     connection of their own. It cannot copy what the server never answers, or a request
//     on the client's own connection, and nobody hears what the server says to a copy.
//
// From ([Scope]) arms a fault with the next bytes, turn or connection, Times ends it after
// so many turns, and Options.Handshake spares the beginning of a connection. A client's own
// end passes on as an end, behind what it sent, never as a reset; the server's reset is a
// reset at the client, and its end an end. Reset, the method, ends all connections at once.
//
// # What HTTP does
//
// It takes each request as a whole, sends it on a connection of its own, and has the whole
// reply before the client gets any: streams and upgrades do not pass, and a body takes its
// length in memory. Half a request or half a reply cannot be shown; where [Rule] cannot
// say it, put a Proxy in front.
//
//   - DropRequest, DropReply and the faults LoseRequests, LoseReplies and Resets end the
//     client's connection with a reset, before or after the server had the request.
//   - Swallow, Silence, BlackHole and Mute keep the client waiting, up to the next Set or
//     Rules, and then reset. The client can connect and send all the same.
//   - Delay, DelayReply and the fault Delays hold a request or a reply. A reset or a silence
//     that Set begins meanwhile is its end; a request that a Rule has picked is the Rule's
//     alone.
//   - Answer and AnswerLate give the client what the Rule says, with the server never or
//     already having the request.
//   - Repeat and the fault Copies send a request again when the server has answered it. One
//     that the server did not answer is not copied, and the copy's reply is thrown away.
//
// A server that is not there, or breaks off, is a reset at the client; nothing is sent
// again unless it is asked for.
//
// # Chance
//
// What is left to chance is a pure function of the seed, the connection and the turn, or the
// ordinal of the bytes that are late (or the request's number), so the String of a proxy is
// enough to draw the same again; the order in which a client opens its connections is the
// client's, and how its bytes fall into pieces is the kernel's.
package netfault
