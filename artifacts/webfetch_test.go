package artifacts

import (
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// crowd counts the requests that a server answers at the same time. It holds them, once they have begun to be answered, until enough are there.
type crowd struct {
	enough chan struct{}

	mu             sync.Mutex
	now, most      int
	refused, admit int // requests beyond admit are refused
	open           int // so many, with the refused ones, close enough
	opened         bool
}

func (c *crowd) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := c.now < c.admit
	if ok {
		c.now++
		c.most = max(c.most, c.now)
	} else {
		c.refused++
	}
	if !c.opened && c.now+c.refused >= c.open {
		c.opened = true
		close(c.enough)
	}
	return ok
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// wrap has the files served in a crowd.
func (c *crowd) wrap(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.enter() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(&crowdedWriter{ResponseWriter: w, crowd: c}, r)
	})
}

// crowdedWriter is held after the first write of a body, and leaves the crowd before the last: then nobody can send another request before.
type crowdedWriter struct {
	http.ResponseWriter
	crowd *crowd
	sent  int64
}

func (w *crowdedWriter) Write(b []byte) (int, error) {
	held := w.sent > 0
	w.sent += int64(len(b))
	if w.sent == length(w.Header()) {
		w.crowd.leave()
	}
	n, err := w.ResponseWriter.Write(b)
	if !held {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		<-w.crowd.enough
	}
	return n, err
}

func length(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// A web seed that answers with ranges is sent several requests at the same time, as many as it admits.
func TestWebSeedLanes(t *testing.T) {
	for name, c := range map[string]*crowd{
		"admits all": {admit: webLanes + 1, open: webLanes},
		"admits two": {admit: 2, open: webLanes},
		"admits one": {admit: 1, open: webLanes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.enough = make(chan struct{})
			_, src, paths := publish(t, testModel{layers: 160, seed: 27}) // 31 MB: four portions
			web := serveFolder(t, filepath.Dir(paths[0]), c.wrap)
			tor, m := webLeecher(t, src)
			client := newWebClient(false)
			client.stall, client.pause = 10*time.Minute, time.Millisecond
			useRemote(t, tor, m, web.URL+"/m.gguf", client)
			if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, m, paths)
			most := min(c.admit, webLanes)
			if c.most != most || c.refused != webLanes-most {
				t.Errorf("%d requests at the same time, and %d refused; want %d and %d", c.most, c.refused, most, webLanes-most)
			}
			if sent := web.sent.Load(); sent != m.TotalBytes() {
				t.Errorf("%d bytes were sent, of %d", sent, m.TotalBytes())
			}
		})
	}
}
