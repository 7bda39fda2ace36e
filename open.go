package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/locker/driver"
)

// Scheme is how a backend is opened by URL. Backend packages register theirs when they are
// imported.
type Scheme struct {
	// Name is the URL's scheme: redis, file, …
	Name string
	// Params are the query parameters that the backend knows beyond the common ones. Any
	// other is refused by Open.
	Params []string
	// Passthrough are parameters of the client's own parser. They stay in URL.Client.
	Passthrough []string
	// Open makes the driver. Close of the driver also closes the client that Open made.
	Open func(ctx context.Context, u *URL) (driver.Driver, error)
}

// URL is what a Scheme opens: a URL whose parameters are known by name, with the common
// ones read.
type URL struct {
	// Client is the URL without any parameter of ours: what the client's parser takes.
	Client url.URL
	// Namespace is ns, by default "locker".
	Namespace string
	// TokenBase is token_base, by default 0.
	TokenBase driver.Token
	params    url.Values
}

// Param returns one of the Scheme's own parameters, or def if the URL does not have it.
func (u *URL) Param(name, def string) string {
	if !u.params.Has(name) {
		return def
	}
	return u.params.Get(name)
}

// Choice is Param for a parameter with few values; the first is the default.
func (u *URL) Choice(name string, values ...string) (string, error) {
	v := u.Param(name, values[0])
	if !slices.Contains(values, v) {
		return "", fmt.Errorf("parameter %s: %q: want %s", name, v, orList(values))
	}
	return v, nil
}

// Bool is Param for true or false.
func (u *URL) Bool(name string, def bool) (bool, error) {
	v, err := u.Choice(name, strconv.FormatBool(def), strconv.FormatBool(!def))
	return v == "true", err
}

// Duration is Param for a positive duration such as 1m30s.
func (u *URL) Duration(name string, def time.Duration) (time.Duration, error) {
	if !u.params.Has(name) {
		return def, nil
	}
	d, err := time.ParseDuration(u.params.Get(name))
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("parameter %s: %q: want a positive duration such as 30s", name, u.params.Get(name))
	}
	return d, nil
}

const defaultNamespace = "locker"

// commonParams are the parameters of every URL.
var commonParams = []string{"ns", "owner", "require", "token_base", "ttl"}

// requirements are the values of require, and what each asks of a backend.
var requirements = map[string]func(Info) bool{
	"durable-tokens":   func(i Info) bool { return i.Tokens >= driver.Durable },
	"consensus-tokens": func(i Info) bool { return i.Tokens >= driver.Consensus },
	"queue":            func(i Info) bool { return i.Has(driver.FeatureQueue) },
	"processes":        func(i Info) bool { return i.Has(driver.FeatureProcesses) },
}

// registry is the only state of the package.
var registry = struct {
	sync.Mutex
	schemes map[string]Scheme
}{schemes: make(map[string]Scheme)}

// Register makes a scheme known to Open. Backend packages call it from init; a name that
// is taken or empty is a programming error and panics.
func Register(s Scheme) {
	registry.Lock()
	defer registry.Unlock()
	if s.Name == "" || s.Open == nil {
		panic("locker: Register of a Scheme without Name or Open")
	}
	if _, dup := registry.schemes[s.Name]; dup {
		panic("locker: Register called twice for scheme " + s.Name)
	}
	registry.schemes[s.Name] = s
}

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.schemes))
}

// Open opens the backend that a URL names and makes a Locker over it; Close then also
// closes the driver and the client that Open made. The backend's package must be
// imported, if only for its side effect:
//
//	import _ "github.com/fencelock/locker/filelock"
//
// Common parameters: ns (namespace, default "locker"), ttl, owner, token_base, and require
// (durable-tokens, consensus-tokens, queue, processes; several with commas), which fails
// if the backend cannot do it. ttl and owner yield to o's. A parameter that neither
// Locker nor the backend defines is an error. o may be nil.
func Open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
	l, err := open(ctx, rawURL, o)
	if err != nil {
		return nil, fmt.Errorf("locker: open %s: %w", RedactURL(rawURL), err)
	}
	return l, nil
}

func open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
	parsed, err := url.Parse(rawURL)
	if err != nil { // whose text may hold a part of a password
		return nil, errors.New("it cannot be read as a URL: in a user name or password escape / ? # @ : and % as %xx")
	}
	s, err := findScheme(parsed.Scheme)
	if err != nil {
		return nil, err
	}
	if parsed.Opaque != "" {
		return nil, fmt.Errorf("want %s://…, with two slashes", parsed.Scheme)
	}
	if parsed.Fragment != "" {
		return nil, errors.New("what stands behind # would be ignored: write %23 for a # in a name")
	}
	u, required, opts, err := s.read(parsed, o)
	if err != nil {
		return nil, err
	}
	d, err := s.Open(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := meets(d.Info(), required); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return Own(d, opts)
}

func meets(info Info, required []string) error {
	for _, r := range required {
		if !requirements[r](info) {
			tokens := info.Tokens.String()
			if info.FailoverLoses != "" {
				tokens += ", for a crash or failover loses " + info.FailoverLoses
			}
			return fmt.Errorf("%w: %s as it is run here does not offer %s (its tokens are %s): see its documentation for how to run it, use another backend, or do not require it",
				ErrUnsupported, info.Name, r, tokens)
		}
	}
	return nil
}

// Own is New over a driver that becomes the Locker's: Close closes it too, and so does Own
// when it fails. It is for the constructors of backends.
func Own(d driver.Driver, o *Options) (*Locker, error) {
	l, err := New(d, o)
	if err != nil {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
		return nil, err
	}
	l.c.owned = true
	return l, nil
}

func findScheme(name string) (Scheme, error) {
	registry.Lock()
	s, ok := registry.schemes[name]
	registry.Unlock()
	if ok {
		return s, nil
	}
	known := Schemes()
	if len(known) == 0 {
		return s, fmt.Errorf("unknown scheme %q: no backend is registered; forgotten import of the backend's package?", name)
	}
	return s, fmt.Errorf("unknown scheme %q: registered are %s; forgotten import of the backend's package?", name, strings.Join(known, ", "))
}

// read splits a URL's parameters into the common ones, the scheme's and the client's.
func (s Scheme) read(parsed *url.URL, o *Options) (u *URL, required []string, opts *Options, err error) {
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, nil, nil, errors.New("the part behind ? cannot be read: escape it")
	}
	known := slices.Concat(commonParams, s.Params, s.Passthrough)
	passed := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(known, name):
			return nil, nil, nil, fmt.Errorf("unknown parameter %q: %sknown are %s",
				name, meant(name, known), strings.Join(slices.Sorted(slices.Values(known)), ", "))
		case slices.Contains(s.Passthrough, name):
			passed[name] = query[name]
		case len(query[name]) > 1:
			return nil, nil, nil, fmt.Errorf("parameter %s is given %d times", name, len(query[name]))
		}
	}
	u = &URL{Client: *parsed, Namespace: defaultNamespace, params: query}
	u.Client.RawQuery = passed.Encode()
	opts = &Options{}
	if o != nil {
		*opts = *o
	}
	if query.Has("ns") {
		if u.Namespace = query.Get("ns"); u.Namespace == "" {
			return nil, nil, nil, errors.New("parameter ns is empty: leave it out for the default")
		}
	}
	if query.Has("token_base") {
		// 0 is what it is by default, so it can be said.
		n, perr := strconv.ParseUint(query.Get("token_base"), 10, 62)
		if perr != nil {
			return nil, nil, nil, fmt.Errorf("parameter token_base: %q: want a whole number below 1<<62", query.Get("token_base"))
		}
		u.TokenBase = driver.Token(n)
	}
	if ttl, terr := u.Duration("ttl", 0); terr != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrInvalidTTL, terr)
	} else if opts.TTL == 0 {
		opts.TTL = ttl
	}
	if opts.Owner == "" {
		opts.Owner = query.Get("owner")
	}
	if query.Has("require") {
		required = strings.Split(query.Get("require"), ",")
	}
	for _, r := range required {
		if requirements[r] == nil {
			names := slices.Sorted(maps.Keys(requirements))
			return nil, nil, nil, fmt.Errorf("parameter require: %q: want %s", r, orList(names))
		}
	}
	return u, required, opts, nil
}

func orList(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

const redacted = "xxxxx"

// RedactURL returns a URL for people: without its password, without anything that could be
// one because it stands in the wrong place, and without the value of any parameter that is
// not known to be harmless. What is no URL is not shown at all.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable URL)"
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), redacted)
	}
	if u.Opaque != "" {
		u.Opaque = redacted
	}
	if i := strings.LastIndexByte(u.Path, '@'); i >= 0 && strings.Contains(u.Path[:i], ":") {
		u.Path, u.RawPath = "/"+redacted+u.Path[i:], ""
	}
	if u.Fragment != "" {
		u.Fragment, u.RawFragment = redacted, ""
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		u.RawQuery = redacted
		return u.String()
	}
	registry.Lock()
	harmless := slices.Concat(commonParams, registry.schemes[u.Scheme].Params)
	registry.Unlock()
	hidden := false
	for name := range query {
		if !slices.Contains(harmless, name) {
			query.Set(name, redacted)
			hidden = true
		}
	}
	if hidden {
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// meant is the question after the name that was probably meant, if there is one: what is no
// typing error is better answered by the list alone.
func meant(name string, known []string) string {
	best, fewest := "", max(1, len(name)/4)+1
	for _, n := range slices.Sorted(slices.Values(known)) {
		if d := edits(name, n); d < fewest {
			best, fewest = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q? ", best)
}

// edits is how many letters were typed wrong, left out, added or swapped with the next one.
func edits(a, b string) int {
	older, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, last = last, row
	}
	return last[len(b)]
}
