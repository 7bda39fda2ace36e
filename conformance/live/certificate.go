package live

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// certificate is a server's certificate for the loopback interface, signed by itself.
type certificate struct {
	ca, key []byte // PEM
	client  *tls.Config
}

func newCertificate(tb testing.TB) certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "locker live tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c := certificate{
		ca:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.ca)
	c.client = &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	return c
}

// files are the certificate and its key as files of a container, readable for whatever user the server runs as.
func (c certificate) files(dir string) []testcontainers.ContainerFile {
	var all []testcontainers.ContainerFile
	for name, content := range map[string][]byte{"ca.pem": c.ca, "cert.pem": c.ca, "key.pem": c.key} {
		all = append(all, testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path.Join(dir, name), FileMode: 0o644,
		})
	}
	return all
}
