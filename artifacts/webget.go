package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Patience with web servers.
const (
	webStall     = 20 * time.Second // a server hangs that sends less than webLeast in this time
	webLeast     = 16 << 10
	webRedirects = 10
	webTries     = 5 // failures in a row, with nothing verified between them
	webPause     = time.Second
	webPauseMost = time.Minute
)

// webClient fetches ranges of files from web servers.
type webClient struct {
	http  *http.Client
	auth  *authTransport // shows a token; nil: to nobody
	stall time.Duration
	pause time.Duration // after a first failure; it doubles
}

// newWebClient returns a client that reaches any address or, with publicOnly, none of this machine
// and its networks: nobody outside may point this node at what only it can see.
func newWebClient(publicOnly bool) *webClient {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	proxy := http.ProxyFromEnvironment
	if publicOnly {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(address) }
		proxy = nil // a proxy would look names up, and be the address that is checked
	}
	return &webClient{stall: webStall, pause: webPause, http: &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{Proxy: proxy, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: webStall,
			DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute},
	}}
}

// authorised returns a client that reaches any address and shows what a says; nil: nothing to anybody.
func authorised(a *Auth) (*webClient, error) {
	c := newWebClient(false)
	auth, err := newAuthTransport(a, c.http.Transport)
	if err != nil {
		return nil, err
	}
	if auth != nil {
		c.auth, c.http.Transport = auth, auth
	}
	return c, nil
}

// checkPublic refuses an address that is not of the public internet.
func checkPublic(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := a.Addr().Unmap()
	carrier := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598: behind a provider's NAT
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || carrier.Contains(ip) {
		return fmt.Errorf("%s is no public address", ip)
	}
	return nil
}

// checkRedirect follows redirects among web servers, not from an encrypted connection to an open
// one.
func checkRedirect(q *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= webRedirects:
		return fmt.Errorf("more than %d redirects", webRedirects)
	case q.URL.Scheme != "http" && q.URL.Scheme != "https":
		return fmt.Errorf("a redirect to %s", quote(q.URL.Scheme+"://"))
	case via[len(via)-1].URL.Scheme == "https" && q.URL.Scheme != "https":
		return errors.New("a redirect from https to http")
	}
	return nil
}

// webError is what a web server did wrong.
type webError struct {
	err     error
	lasting bool          // asking again is in vain
	after   time.Duration // the server asked for patience
}

func (e *webError) Error() string { return e.err.Error() }
func (e *webError) Unwrap() error { return e.err }

// lastingError returns a webError that ends the use of a server.
func lastingError(format string, args ...any) error {
	return &webError{err: fmt.Errorf(format, args...), lasting: true}
}

// answer is what came of a request for bytes.
type answer struct {
	io.ReadCloser
	first  int64  // where the body begins in the file: not where it was asked to where a server ignores ranges
	size   int64  // of the file
	ranged bool   // the server knows ranges
	tag    string // changes when the file does: a strong ETag or Last-Modified; may be empty
}

// get asks for the bytes [from, to) of a file of size bytes, 0 if that is not known. With tag, the
// answer is the whole file, from its beginning, if its tag is another one by now. The body ends with
// an error when the server stalls. Close it.
func (c *webClient) get(ctx context.Context, url string, from, to, size int64, tag string) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel(nil)
		return nil, &webError{err: err, lasting: true}
	}
	q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	q.Header.Set("Accept-Encoding", "identity")
	q.Header.Set("User-Agent", "starling")
	if tag != "" {
		q.Header.Set("If-Range", tag)
	}
	late := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	defer late.Stop()
	resp, err := c.http.Do(q)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		var dns *net.DNSError
		return nil, &webError{err: plainURLError(err), lasting: errors.As(err, &dns) && dns.IsNotFound}
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		resp.Body.Close()
		cancel(nil)
		return nil, c.auth.refusal(resp.StatusCode, resp.Request.URL)
	}
	a := &answer{tag: tagOf(resp.Header), ranged: resp.StatusCode == http.StatusPartialContent}
	if a.first, a.size, err = checkAnswer(resp.StatusCode, resp.Header, resp.ContentLength, from, to, size); err != nil {
		resp.Body.Close()
		cancel(nil)
		return nil, err
	}
	a.ReadCloser = watch(ctx, cancel, resp.Body, c.stall)
	return a, nil
}

// plainURLError takes the method and URL off an error, which its reader adds.
func plainURLError(err error) error {
	for {
		var e interface{ Unwrap() error }
		if _, ok := err.(net.Error); !ok || !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "Get ") {
			return err
		}
		err = e.Unwrap()
	}
}

// tagOf returns what tells one state of a file from another: a strong ETag, or the time of its last
// change.
func tagOf(h http.Header) string {
	if t := h.Get("ETag"); strings.HasPrefix(t, `"`) {
		return t
	}
	return h.Get("Last-Modified")
}

// checkAnswer says where in the file an answer's body begins and how long the file is. It takes the
// answer to a request for [from, to) of a file of size bytes (0: not known), and believes nothing
// that does not fit it.
func checkAnswer(status int, h http.Header, length, from, to, size int64) (first, total int64, err error) {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return 0, 0, lastingError("it sends the file in encoding %s, where it was asked for its bytes", quote(e))
	}
	switch {
	case status == http.StatusPartialContent:
		if first, total, err = checkContentRange(h.Get("Content-Range"), length, from, to, size); err != nil {
			return 0, 0, &webError{err: err, lasting: true}
		}
		return first, total, nil
	case status == http.StatusOK:
		switch {
		case length < 0 && size == 0:
			return 0, 0, lastingError("it doesn't say how long the file is")
		case length < 0:
			length = size
		case size > 0 && length != size:
			return 0, 0, lastingError("its file has %d bytes, the model's has %d: it is another file", length, size)
		}
		if length < 1 || length > MaxPartSize {
			return 0, 0, lastingError("its file has %d bytes, 1 to %d are allowed", length, int64(MaxPartSize))
		}
		return 0, length, nil
	case status == http.StatusRequestedRangeNotSatisfiable:
		return 0, 0, lastingError("it has no bytes %d to %d: it is another file", from, to-1)
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests || status >= 500 && status < 600:
		after, err := strconv.Atoi(h.Get("Retry-After")) // a date is not waited for
		if err != nil || after < 0 {
			after = 0
		}
		return 0, 0, &webError{err: fmt.Errorf("status %d", status), after: min(time.Duration(min(after, 3600))*time.Second, webPauseMost)}
	}
	return 0, 0, lastingError("status %d: the file isn't there", status)
}

// checkContentRange reads "bytes FIRST-LAST/TOTAL" of an answer of length bytes (-1: not known). The
// answer may be shorter than what was asked for; it must not be anything else.
func checkContentRange(text string, length, from, to, size int64) (first, total int64, err error) {
	bad := func(why string) (int64, int64, error) {
		return 0, 0, fmt.Errorf("it was asked for bytes %d to %d and says %s: %s", from, to-1, quote("Content-Range: "+text), why)
	}
	body, ok := strings.CutPrefix(text, "bytes ")
	span, whole, ok2 := strings.Cut(body, "/")
	a, b, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return bad("that is no range of bytes")
	}
	first, err1 := parseOffset(a)
	last, err2 := parseOffset(b)
	if err1 != nil || err2 != nil {
		return bad("that is no range of bytes")
	}
	if whole == "*" && size > 0 {
		total = size
	} else if total, err = parseOffset(whole); err != nil {
		return bad("that has no length")
	}
	switch {
	case total < 1 || total > MaxPartSize:
		return bad("a file has 1 byte to 1 PiB")
	case size > 0 && total != size:
		return bad(fmt.Sprintf("the file has %d bytes", size))
	case first != from || last < first || last >= to || last >= total:
		return bad("that is another range")
	case length >= 0 && length != last-first+1:
		return bad(fmt.Sprintf("%d bytes come", length))
	}
	return first, total, nil
}

// parseOffset reads digits alone.
func parseOffset(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, 64)
}

// persist calls try until there is no more to do. A failure that may pass is tried again, with growing
// pauses, webTries times without progress between them; any other ends it.
func (c *webClient) persist(ctx context.Context, try func() (more, progress bool, err error)) error {
	for failures := 0; ; {
		more, progress, err := try()
		if progress {
			failures = 0
		}
		var web *webError
		switch {
		case err == nil && !more:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			continue
		case !errors.As(err, &web) || web.lasting:
			return err
		}
		if failures++; failures == webTries {
			return fmt.Errorf("%w, %d times in a row", err, failures)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(web.after, min(c.pause<<(failures-1), webPauseMost))):
		}
	}
}

// errStalled ends a request to a server that hangs.
var errStalled = errors.New("it stopped sending")

// watched is a body that ends when less than webLeast bytes come in a time.
type watched struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	got    atomic.Int64
	timer  *time.Timer
}

func watch(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, stall time.Duration) *watched {
	w := &watched{ReadCloser: body, ctx: ctx, cancel: cancel}
	w.timer = time.AfterFunc(math.MaxInt64, func() { // begins below, when w.timer is there
		if w.got.Swap(0) < webLeast {
			cancel(errStalled)
			return
		}
		w.timer.Reset(stall)
	})
	w.timer.Reset(stall)
	return w
}

// Read implements io.Reader.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	w.got.Add(int64(n))
	if err != nil && err != io.EOF {
		if cause := context.Cause(w.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	w.cancel(nil)
	return w.ReadCloser.Close()
}
