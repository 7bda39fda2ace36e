package netfault

import "strings"

// RESP is the Handshake of Redis and Valkey clients: the commands that a client sends of
// its own accord when it connects.
func RESP(_ int, first []byte) bool {
	// *2\r\n$5\r\nHELLO\r\n…
	lines := strings.SplitN(string(first), "\r\n", 4)
	if len(lines) < 4 || !strings.HasPrefix(lines[0], "*") || !strings.HasPrefix(lines[1], "$") {
		return false
	}
	switch strings.ToUpper(lines[2]) {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "READONLY":
		return true
	default:
		return false
	}
}
