package s3lock

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencelock/locker/driver"
)

// Options are what a bucket can be told. The zero value is fine.
type Options struct {
	// Prefix is put before every name, without slashes at its ends. Empty: none.
	Prefix string
	// Namespace is the name of the folder below the prefix. Empty: locker.
	Namespace string
	// TokenBase is added to every token. It is fixed when the namespace is created.
	TokenBase driver.Token
	// Expiry is how a contender judges that a holder's time is over.
	Expiry Expiry
	// SSE is the server-side encryption of what is written, KMSKey the key's id for
	// aws:kms. Empty: the bucket's default.
	SSE    types.ServerSideEncryption
	KMSKey string
	// Keep is how many old numbers of a key are kept. Zero: 8.
	Keep int
	// Logger is told what a probe warns about, and why the store's clocks are not used.
	// Nil: silent.
	Logger *slog.Logger
}

// Expiry is a rule by which a holder's time is over.
type Expiry int

const (
	// StoreClock compares the Date of a reply with the object's Last-Modified, both by the
	// store's clock. It is used only where the store's clocks were found to agree.
	StoreClock Expiry = iota
	// Observed waits until the contender has seen the object unchanged for the whole
	// validity, on its own clock. A contender that has just come waits that long.
	Observed
)

// String returns store or observed.
func (e Expiry) String() string {
	if e == Observed {
		return "observed"
	}
	return "store"
}

const (
	// name is Info.Name.
	name             = "s3lock"
	defaultNamespace = "locker"
)

// base returns what the name of every object begins with: prefix, namespace, a slash.
func (o *Options) base() (string, error) {
	ns := o.Namespace
	if ns == "" {
		ns = defaultNamespace
	}
	if strings.Contains(ns, "/") || ns[0] == '.' || len(ns) > maxName {
		return "", driver.Wrap(driver.ErrLayout, fmt.Errorf("namespace %q: want a plain name without a slash", ns))
	}
	base := ns + "/"
	if o.Prefix != "" {
		base = o.Prefix + "/" + base
	}
	switch {
	case o.Prefix != "" && (path.Clean(o.Prefix) != o.Prefix || strings.HasPrefix(o.Prefix, "/") || strings.HasPrefix(o.Prefix, ".")):
		return "", driver.Wrap(driver.ErrLayout, fmt.Errorf("prefix %q: want names with one slash between them", o.Prefix))
	case !utf8.ValidString(base) || strings.Contains(base, "\x00"):
		return "", driver.Wrap(driver.ErrLayout, fmt.Errorf("prefix %q, namespace %q: want UTF-8 without NUL", o.Prefix, ns))
	case len(base)+maxName+1+numberDigits+len(recordSuffix) > maxObjectName:
		return "", driver.Wrap(driver.ErrLayout, fmt.Errorf("the prefix has %d bytes: want at most %d", len(o.Prefix), maxObjectName-maxName-len(ns)-len(recordSuffix)-numberDigits-3))
	case o.TokenBase > driver.MaxToken/2:
		return "", driver.Wrap(driver.ErrLayout, fmt.Errorf("token base %v leaves no tokens", o.TokenBase))
	case o.KMSKey != "" && o.SSE != types.ServerSideEncryptionAwsKms && o.SSE != types.ServerSideEncryptionAwsKmsDsse:
		return "", driver.Wrap(driver.ErrLayout, errors.New("a KMS key is only for sse=aws:kms"))
	}
	return base, nil
}
