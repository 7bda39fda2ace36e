package s3lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/driver"
)

// anyRegion is for endpoints that have none of their own: something must be signed.
const anyRegion = "us-east-1"

// The URL is s3://bucket/prefix with the parameters below. The endpoint counts as one of the
// client's, so that Locker never prints it: people put credentials there. The client's own
// errors name its host and path.
func init() {
	locker.Register(locker.Scheme{
		Name:        "s3",
		Params:      []string{"expiry", "kms_key", "path_style", "profile", "region", "sse"},
		Passthrough: []string{endpointParam},
		Open:        func(ctx context.Context, u *locker.URL) (driver.Driver, error) { return openURL(ctx, u) },
	})
}

const endpointParam = "endpoint"

func openURL(ctx context.Context, u *locker.URL) (*Driver, error) {
	client, o, closeIdle, err := fromURL(ctx, u)
	if err != nil {
		return nil, err
	}
	d, err := NewDriver(ctx, client, u.Client.Host, o)
	if err != nil {
		closeIdle()
		return nil, err
	}
	d.owned = closeIdle
	return d, nil
}

// fromURL makes the client and the options that a URL describes.
func fromURL(ctx context.Context, u *locker.URL) (*s3.Client, *Options, func(), error) {
	if u.Client.User != nil {
		return nil, nil, nil, errors.New("secrets do not belong into the URL: give credentials in the environment (AWS_ACCESS_KEY_ID …), by profile=, or by the machine's role")
	}
	if u.Client.Host == "" {
		return nil, nil, nil, errors.New("want s3://bucket/prefix: the bucket is missing")
	}
	if u.Client.Port() != "" {
		return nil, nil, nil, fmt.Errorf("want s3://bucket/prefix: %q looks like a server: give it as endpoint=http://%s", u.Client.Host, u.Client.Host)
	}
	o := &Options{Prefix: strings.Trim(u.Client.Path, "/"), Namespace: u.Namespace, TokenBase: u.TokenBase, KMSKey: u.Param("kms_key", "")}
	expiry, err := u.Choice("expiry", StoreClock.String(), Observed.String())
	if err != nil {
		return nil, nil, nil, err
	}
	if expiry == Observed.String() {
		o.Expiry = Observed
	}
	if u.Param("sse", "") != "" {
		sse, err := u.Choice("sse", string(types.ServerSideEncryptionAes256), string(types.ServerSideEncryptionAwsKms), string(types.ServerSideEncryptionAwsKmsDsse))
		if err != nil {
			return nil, nil, nil, err
		}
		o.SSE = types.ServerSideEncryption(sse)
	}
	pathStyle, err := u.Bool("path_style", false)
	if err != nil {
		return nil, nil, nil, err
	}
	endpoint, err := endpointOf(u)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg, closeIdle, err := configured(ctx, u, endpoint)
	if err != nil {
		return nil, nil, nil, err
	}
	return s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.UsePathStyle = pathStyle
		if endpoint != "" {
			so.BaseEndpoint = &endpoint
		}
	}), o, closeIdle, nil
}

// configured reads the client's usual configuration, with what the URL says about it.
func configured(ctx context.Context, u *locker.URL, endpoint string) (aws.Config, func(), error) {
	from := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient()),
		config.WithLogger(logging.Nop{}), // it writes to stderr: what matters is in the errors
	}
	if r := u.Param("region", ""); r != "" {
		from = append(from, config.WithRegion(r))
	}
	if p := u.Param("profile", ""); p != "" {
		from = append(from, config.WithSharedConfigProfile(p))
	}
	cfg, err := config.LoadDefaultConfig(ctx, from...)
	if err != nil {
		return cfg, nil, driver.Wrap(driver.ErrUnavailable, fmt.Errorf("the client's configuration: %w", err))
	}
	if cfg.Region == "" {
		if endpoint == "" {
			return cfg, nil, fmt.Errorf("%w: none is configured: give region= (or AWS_REGION)", ErrRegion)
		}
		cfg.Region = anyRegion
	}
	// The same transport, with the configuration's certificates, in a client whose
	// connections can be closed and which follows no redirect.
	buildable, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return cfg, func() {}, nil
	}
	transport := buildable.GetTransport()
	transport.MaxIdleConnsPerHost = idleConnections
	cfg.HTTPClient = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return cfg, transport.CloseIdleConnections, nil
}

// idleConnections is how many connections stay open between renewals.
const idleConnections = 64

func endpointOf(u *locker.URL) (string, error) {
	all := u.Client.Query()[endpointParam]
	if len(all) == 0 {
		return "", nil
	}
	raw := all[0]
	e, err := url.Parse(raw)
	switch {
	case len(all) > 1:
		return "", errors.New("parameter endpoint is given more than once")
	case err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https":
		return "", errors.New("parameter endpoint: want http://host:port or https://host")
	case e.User != nil:
		return "", errors.New("parameter endpoint: secrets do not belong into a URL")
	case e.RawQuery != "" || e.Fragment != "":
		return "", errors.New("parameter endpoint: want no query")
	}
	return raw, nil
}
