package s3lock

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencelock/locker/driver"
	"github.com/fencelock/locker/epoch"
)

// What can be wrong with a bucket, beside the portable errors of package driver. Each
// comes with a sentence that says what to do.
var (
	// ErrNoBucket: the bucket does not exist, or this endpoint does not know it.
	ErrNoBucket = errors.New("no such bucket")
	// ErrDenied: the credentials are missing, wrong, or lack a permission.
	ErrDenied = errors.New("access denied")
	// ErrRegion: the bucket is in another region.
	ErrRegion = errors.New("wrong region")
	// ErrStore: the store, or this kind of bucket, cannot keep locks. It also is
	// driver.ErrUnsupported.
	ErrStore = errors.New("the store cannot keep locks")
)

// errConflict is S3's 409: somebody else's request for the same object was under way, and
// this one was not applied.
var errConflict = errors.New("conflicting request")

// actions are the permissions behind each operation.
var actions = map[string]string{
	// Without s3:ListBucket a missing object looks like a forbidden one.
	opGet: "s3:GetObject and s3:ListBucket", opHead: "s3:GetObject and s3:ListBucket",
	opList: "s3:ListBucket", opDelete: "s3:DeleteObject",
	// A conditional PUT also reads.
	opCreate: "s3:PutObject and s3:GetObject", opReplace: "s3:PutObject and s3:GetObject",
	opLifecycle: "s3:GetLifecycleConfiguration", opBucket: "s3:ListBucket",
}

// The operations, as errors name them.
const (
	opGet       = "GetObject"
	opHead      = "HeadObject"
	opList      = "ListObjectsV2"
	opDelete    = "DeleteObject"
	opCreate    = "PutObject If-None-Match"
	opReplace   = "PutObject If-Match"
	opLifecycle = "GetBucketLifecycleConfiguration"
	opBucket    = "HeadBucket"
)

// refused turns the client's error into what the algorithm knows: a definite answer of the
// store, a definite failure, or, as it is, an unknown outcome.
func (b *bucket) refused(op string, a *answer, err error) error {
	if err == nil {
		return nil
	}
	if !a.sent.Load() { // no byte was written: whatever it was, nothing was applied
		return driver.Wrap(driver.ErrUnavailable, unsent(err))
	}
	code, status := codeOf(err), a.status
	switch {
	case status == 0:
		return err
	case a.alien: // the request may have been applied, or not
		return fmt.Errorf("%s: this is not the store's answer: go past what is between: %w", op, err)
	case status == http.StatusRequestTimeout: // S3's own is a 400; something between may have sent the request on
		return err
	case code == "NoSuchBucket", code == "InvalidBucketName":
		return unavailable(ErrNoBucket, fmt.Sprintf("create bucket %q, or correct its name or the endpoint", b.name), err)
	case status == http.StatusNotFound && code == noSuchKey: // any other comes from elsewhere, and tells nothing
		return driverless(epoch.ErrNotExist, err)
	case status == http.StatusPreconditionFailed && op == opCreate:
		return driverless(epoch.ErrExist, err)
	case status == http.StatusPreconditionFailed:
		return driverless(epoch.ErrChanged, err)
	case status == http.StatusConflict:
		return driverless(errConflict, err)
	case status >= 300 && status < 400 && status != http.StatusNotModified, code == "PermanentRedirect",
		code == "AuthorizationHeaderMalformed", code == "IllegalLocationConstraintException":
		return unavailable(ErrRegion, b.regionAdvice(a), err)
	case status == http.StatusUnauthorized, status == http.StatusForbidden && !isCredential(code):
		return unavailable(ErrDenied, fmt.Sprintf("allow %s on bucket %q", actions[op], b.name), err)
	case isCredential(code):
		return unavailable(ErrDenied, "check the access key, its secret, the session token and this machine's clock", err)
	case status == http.StatusNotImplemented && b.sse != "" && (op == opCreate || op == opReplace):
		return driver.Wrap(driver.ErrUnavailable, fmt.Errorf("set up encryption with %s in the store, or do without sse: %w", b.sse, err))
	case status == http.StatusNotImplemented:
		return driver.Wrap(driver.ErrUnsupported, fmt.Errorf("%w: it does not implement %s: use another store: %w", ErrStore, op, err))
	case status >= 400 && status < 500 && code == "":
		return driver.Wrap(driver.ErrUnavailable, fmt.Errorf("this is no answer of S3: check the endpoint, http or https, and what is between: %w", err))
	case code == "SlowDown", status >= 400 && status < 500:
		return driver.Wrap(driver.ErrUnavailable, err)
	default: // 5xx: it may have been applied
		return err
	}
}

func unavailable(what error, advice string, raw error) error {
	return driver.Wrap(driver.ErrUnavailable, fmt.Errorf("%w: %s: %w", what, advice, raw))
}

// driverless joins the algorithm's own answer with the client's error.
func driverless(what, raw error) error { return fmt.Errorf("%w: %w", what, raw) }

// unsent says why a request did not leave this process.
func unsent(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	var (
		dns       *net.DNSError
		dial      *net.OpError
		authority x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("%w (where the store has no host name for each bucket: path_style=true)", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("the endpoint does not speak TLS: give it as http://: %w", err)
	case errors.As(err, &authority):
		return fmt.Errorf("trust the endpoint's certificate, by AWS_CA_BUNDLE or this machine's store: %w", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("check the endpoint, and that the store runs: %w", err)
	}
	// The client has no type for it.
	if strings.Contains(err.Error(), "get identity") {
		return fmt.Errorf("%w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE or profile=, or give the machine a role: %w", ErrDenied, err)
	}
	return err
}

func (b *bucket) regionAdvice(a *answer) string {
	if r := a.header.Get("X-Amz-Bucket-Region"); r != "" {
		return fmt.Sprintf("bucket %q is in region %s: use that one", b.name, r)
	}
	// Its path and query are the request's. The client makes one up where there is none.
	if to, err := url.Parse(a.header.Get("Location")); err == nil && to.Host != "" && to.Host != "amazonaws.com" {
		return fmt.Sprintf("the endpoint sends on to %s://%s: give that as the endpoint", to.Scheme, to.Host)
	}
	return fmt.Sprintf("use the region and the endpoint of bucket %q", b.name)
}

// noSuchKey is S3's code for an object that does not exist.
const noSuchKey = "NoSuchKey"

func isCredential(code string) bool {
	switch code {
	case "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"RequestTimeTooSkewed", "NotSignedUp", "InvalidSecurity", "XAdminUserNotFound": // the last is VersityGW's, with 404
		return true
	default:
		return false
	}
}

// codeOf returns S3's own code of an error, or "".
func codeOf(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// notModified reports whether a conditional read found nothing new.
func notModified(err error) bool {
	res := (*smithyhttp.ResponseError)(nil)
	return errors.As(err, &res) && res.HTTPStatusCode() == http.StatusNotModified
}
