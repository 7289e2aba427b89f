package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

// Files in the pki directory of a lab.
const (
	caCert     = "ca.crt"
	serverCert = "server.crt" // of kube-apiserver, and of proxies in front of it
	serverKey  = "server.key"
	accountKey = "service-accounts.key" // signs the tokens of service accounts
	tokenFile  = "tokens.csv"
)

func (l *Lab) pki(file string) string { return filepath.Join(l.dir, pkiDir, file) }

// issueCertificates makes an authority, a certificate of the API server for
// every name under which it is called, and the key for service accounts.
func (l *Lab) issueCertificates() error {
	authority, err := newAuthority()
	if err != nil {
		return err
	}
	server := template("kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{
		net.IPv4(127, 0, 0, 1), net.IPv6loopback, l.controlPlane().IPv4.AsSlice(), l.controlPlane().IPv6.AsSlice(),
		net.ParseIP("10.96.0.1"), net.ParseIP("fd00:96::1"),
	}
	cert, key, err := authority.issue(server)
	if err != nil {
		return err
	}
	accounts, err := newKey()
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name  string
		block *pem.Block
	}{
		{caCert, certBlock(authority.cert.Raw)},
		{serverCert, certBlock(cert)},
		{serverKey, keyBlock(key)},
		{accountKey, keyBlock(accounts)},
	} {
		if err := writeFile(l.pki(file.name), pem.EncodeToMemory(file.block)); err != nil {
			return err
		}
	}
	return nil
}

// An authority signs certificates, and is forgotten afterwards.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (authority, error) {
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	self := template("ccm-baremetal lab")
	self.IsCA, self.BasicConstraintsValid = true, true
	self.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("issue the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

// issue completes cert and returns its encoding and its key.
func (a authority) issue(cert *x509.Certificate) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue the certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return der, key, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}
}

func certBlock(der []byte) *pem.Block { return &pem.Block{Type: "CERTIFICATE", Bytes: der} }

func keyBlock(key *ecdsa.PrivateKey) *pem.Block {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // only for curves that have no name
	}
	return &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
}

// newToken returns a secret for one account.
func newToken() string { return rand.Text() }
