package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
)

// oneFigure is an engine that has nothing but metrics.
type oneFigure struct{ control.Engine }

func (oneFigure) WriteMetrics(w io.Writer) error {
	_, err := io.WriteString(w, "one 1\n")
	return err
}

func TestObserver(t *testing.T) {
	for _, profiles := range []bool{false, true} {
		o, err := startObserver("127.0.0.1:0", oneFigure{}, profiles)
		if err != nil {
			t.Fatal(err)
		}
		get := func(url string) (int, string) {
			resp, err := http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(b)
		}
		if code, text := get(o.url()); code != 200 || text != "one 1\n" {
			t.Errorf("metrics: %d %q", code, text)
		}
		base := strings.TrimSuffix(o.url(), "/metrics")
		if code, _ := get(base + "/v1/status"); code != 404 {
			t.Errorf("the local interface is on the port: %d", code)
		}
		code, text := get(base + "/debug/pprof/goroutine?debug=1")
		if profiles != (code == 200) || profiles && !strings.Contains(text, "goroutine profile") {
			t.Errorf("profiles %v: %d %.40q", profiles, code, text)
		}
		o.close()
		if _, err := startObserver(o.addr.String()+"0000", oneFigure{}, false); err == nil || !strings.Contains(err.Error(), "choose another address") {
			t.Errorf("a port that there isn't: %v", err)
		}
	}
}
