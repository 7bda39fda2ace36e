package cli

import (
	"errors"
	"strconv"
	"time"
)

// duration is a flag: 90s, 1m30s, or a plain number of seconds as flock(1) and timeout(1)
// take it.
type duration struct {
	d    *time.Duration
	zero bool // 0 is a value
}

func (f duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if seconds, perr := strconv.ParseFloat(s, 64); perr == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 0 || d == 0 && !f.zero {
		if f.zero {
			return errors.New("want zero or a positive duration such as 90s or 1m30s")
		}
		return errors.New("want a positive duration such as 90s or 1m30s")
	}
	*f.d = d
	return nil
}

// String is the default in the help; what is not set has none.
func (f duration) String() string {
	if f.d == nil || *f.d <= 0 {
		return ""
	}
	return f.d.String()
}

// Type is what the help shows.
func (f duration) Type() string { return "duration" }

// exitCode is a flag: 0 to 255; negative when it is not set.
type exitCode int

func (e *exitCode) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return errors.New("want 0 to 255")
	}
	*e = exitCode(n)
	return nil
}

// String is the default in the help; what is not set has none.
func (e *exitCode) String() string {
	if *e < 0 {
		return ""
	}
	return strconv.Itoa(int(*e))
}

// Type is what the help shows.
func (e *exitCode) Type() string { return "code" }

// urlFlag is a flag that may be left out, but not be empty.
type urlFlag string

func (u *urlFlag) Set(s string) error {
	if s == "" {
		return errors.New("the URL is empty; is a variable not set?")
	}
	*u = urlFlag(s)
	return nil
}

// String is the default in the help.
func (u *urlFlag) String() string { return string(*u) }

// Type is what the help shows.
func (u *urlFlag) Type() string { return "URL" }
