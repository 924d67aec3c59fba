package artifacts

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Auth is what a person shows one web server, the hub, for files that it doesn't give to everybody.
type Auth struct {
	// Server is the server's base URL. The token goes to its scheme, host and port, over encrypted connections or to this machine, and nowhere
	// else: not to where the server redirects to, and not to other servers.
	Server string

	// Token goes into the Authorization header (RFC 6750). Empty: none is shown.
	Token string
}

// maxToken bounds a token, in bytes.
const maxToken = 4096

// authTransport shows a token to its server.
type authTransport struct {
	http.RoundTripper
	server *url.URL
	token  string // empty: there is none
}

// newAuthTransport returns nil for no Auth. An error never has the token in it.
func newAuthTransport(a *Auth, below http.RoundTripper) (*authTransport, error) {
	if a == nil {
		return nil, nil
	}
	u, err := url.Parse(a.Server)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("hub %s: write its URL, such as %s", quote(a.Server), DefaultHub)
	}
	if len(a.Token) > maxToken || strings.ContainsFunc(a.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errors.New("the token is no word of printable ASCII: look at HF_TOKEN or the file of --token-file")
	}
	return &authTransport{RoundTripper: below, server: u, token: a.Token}, nil
}

// RoundTrip implements http.RoundTripper. The header is set here, for each request alone: the client copies those of its caller to redirects.
func (t *authTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if t.token != "" && t.isServer(q.URL) && isPrivate(q.URL) {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.RoundTripper.RoundTrip(q)
}

// isServer reports whether a URL is on the server.
func (t *authTransport) isServer(u *url.URL) bool {
	return u.Scheme == t.server.Scheme && strings.EqualFold(u.Hostname(), t.server.Hostname()) && port(u) == port(t.server)
}

// isPrivate reports whether nobody on the way reads what is sent to a URL.
func isPrivate(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// refusal says why a server doesn't give a file that needs permission, and what to do. t may be nil.
func (t *authTransport) refusal(status int, u *url.URL) error {
	switch {
	case t == nil || !t.isServer(u):
		return lastingError("status %d: it doesn't give the file to everybody", status)
	case t.token == "":
		return lastingError("status %d: it has no such file, or gives it to nobody without a token: accept its terms on the model's page, and set HF_TOKEN or give --token-file", status)
	case !isPrivate(u):
		return lastingError("status %d: it doesn't give the file to everybody, and the token is not shown over http: name the hub by an https URL", status)
	}
	return lastingError("status %d: it has no such file, or doesn't give it for this token: accept its terms on the model's page, or give another token (HF_TOKEN, --token-file)", status)
}
