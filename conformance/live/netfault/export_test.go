package netfault

// For tests in memory and in virtual time.
var (
	ListenOn     = listen
	ListenHTTPOn = listenHTTP
)
