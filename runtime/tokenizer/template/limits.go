package template

// Limits bounds one rendering. A zero field means its default.
type Limits struct {
	Steps  int // expressions and statements evaluated, and one for every 32 bytes searched; default 5 million
	Memory int // bytes of strings and lists ever made while rendering, freed or not; default 128 MiB
	Depth  int // macro calls within each other, and values within values; default 100
	Output int // bytes of the result; default 32 MiB
}

const (
	defaultSteps  = 5_000_000
	defaultMemory = 128 << 20
	defaultDepth  = 100
	defaultOutput = 32 << 20

	maxSource  = 1 << 20 // bytes of a template; the longest in use have some 30 kB
	maxNesting = 100     // of blocks and of expressions, in the source
	maxChain   = 1000    // operators, filters or subscripts in a row, which nest in the tree
	maxRange   = 100_000 // items of range(), as in Jinja's sandbox
)

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		v   *int
		def int
	}{{&l.Steps, defaultSteps}, {&l.Memory, defaultMemory}, {&l.Depth, defaultDepth}, {&l.Output, defaultOutput}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	return l
}

// meter counts what a rendering uses.
type meter struct {
	limits               Limits
	steps, memory, depth int
}

// step counts n units of work.
func (m *meter) step(n int) error {
	m.steps += n
	if m.steps > m.limits.Steps {
		return &LimitError{What: "steps", Limit: m.limits.Steps}
	}
	return nil
}

// scan counts the work of looking through n bytes.
func (m *meter) scan(n int) error { return m.step(1 + n/32) }

// alloc counts n bytes about to be made. Call it before making them.
func (m *meter) alloc(n int) error {
	if n < 0 || n > m.limits.Memory-m.memory {
		return &LimitError{What: "memory", Limit: m.limits.Memory}
	}
	m.memory += n
	return m.step(n / 64)
}

// allocItems counts a list of n items about to be made.
func (m *meter) allocItems(n int) error {
	if n > m.limits.Memory/16 {
		return &LimitError{What: "memory", Limit: m.limits.Memory}
	}
	return m.alloc(16 * n)
}

// enter counts one level of nesting; leave ends it.
func (m *meter) enter() error {
	if m.depth >= m.limits.Depth {
		return &LimitError{What: "depth", Limit: m.limits.Depth}
	}
	m.depth++
	return nil
}

func (m *meter) leave() { m.depth-- }
