// Package metrics counts what a node does and writes the figures in the text
// format of Prometheus. It holds counters and histograms, which the node feeds
// as things happen; what has a current value (sessions, queues, memory) is read
// from the node when somebody asks. docs/observability.md lists every figure.
package metrics
