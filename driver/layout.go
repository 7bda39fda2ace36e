package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// LayoutVersion is the version of the namespace record this release writes and reads.
const LayoutVersion = 1

// Layout is the namespace record: whatever two clients must agree on to exclude each
// other. It is written once, when the namespace is created, and never changed.
type Layout struct {
	Version int `json:"version"`
	// Backend is Info.Name: two backends never share a namespace.
	Backend string `json:"backend"`
	// TokenBase is added to, or starts, the backend's counter. A base above another
	// backend's last token lets a resource that stored a fence accept this one.
	TokenBase Token `json:"token_base,omitempty"`
	// Settings are the backend's own: escaping, buckets, token mode.
	Settings map[string]string `json:"settings,omitempty"`
}

// LayoutStore reads and creates one namespace record.
type LayoutStore struct {
	// Read returns the stored record, or nil if there is none.
	Read func(ctx context.Context) ([]byte, error)
	// Create writes the record only if there is none and reports whether it did. An
	// error may mean that it was written: Agree reads again.
	Create func(ctx context.Context, record []byte) (bool, error)
}

// Agree makes sure that the namespace has the wanted layout: it creates the record if
// there is none and compares it otherwise. A difference is ErrLayout and names it.
// Agree costs one request once the namespace exists.
func (want Layout) Agree(ctx context.Context, s LayoutStore) error {
	want.Version = LayoutVersion
	stored, err := s.Read(ctx)
	if err != nil {
		return err
	}
	if stored == nil {
		made, cerr := s.Create(ctx, want.encode())
		if made && cerr == nil {
			return nil
		}
		if stored, err = s.Read(ctx); err != nil {
			return errors.Join(cerr, err)
		}
		if stored == nil {
			if cerr == nil {
				cerr = errors.New("the record was neither created nor found")
			}
			return Wrap(ErrUnavailable, fmt.Errorf("create the namespace record: %w", cerr))
		}
	}
	return want.compare(stored)
}

func (want Layout) encode() []byte {
	b, err := json.Marshal(want)
	if err != nil { // strings and numbers only
		panic(err)
	}
	return append(b, '\n')
}

func (want Layout) compare(stored []byte) error {
	var have Layout
	dec := json.NewDecoder(bytes.NewReader(stored))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&have); err != nil || have.Version < 1 {
		var probe struct {
			Version int `json:"version"`
		}
		if json.Unmarshal(stored, &probe) == nil && probe.Version > LayoutVersion {
			return fmt.Errorf("%w: it has version %d and this program knows %d: use a newer program", ErrLayout, probe.Version, LayoutVersion)
		}
		return fmt.Errorf("%w: the namespace record cannot be read (%.60q): is this namespace used by something else?", ErrCorrupt, stored)
	}
	if have.Version != want.Version {
		return fmt.Errorf("%w: it has version %d and this program knows %d", ErrLayout, have.Version, want.Version)
	}
	var diffs []string
	add := func(name, have, want string) {
		if have != want {
			diffs = append(diffs, fmt.Sprintf("%s is %q there and %q here", name, have, want))
		}
	}
	add("backend", have.Backend, want.Backend)
	add("token_base", strconv.FormatUint(uint64(have.TokenBase), 10), strconv.FormatUint(uint64(want.TokenBase), 10))
	names := maps.Clone(have.Settings)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, want.Settings)
	for _, n := range slices.Sorted(maps.Keys(names)) {
		add(n, have.Settings[n], want.Settings[n])
	}
	if len(diffs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: use the namespace's own settings, or another ns", ErrLayout, strings.Join(diffs, "; "))
}
