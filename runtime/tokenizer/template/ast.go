package template

// expr is an expression of the tree; eval is in eval.go.
type expr interface {
	eval(vm *interp, f *frame) (any, error)
}

// The expressions.
type (
	constExpr struct{ value any }
	nameExpr  struct{ name string }
	listExpr  struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, values []expr }
	attrExpr struct {
		of   expr
		name string
	}
	itemExpr  struct{ of, key expr }
	sliceExpr struct{ of, from, to, step expr } // the last three may be nil
	callExpr  struct {
		of   expr
		args argExprs
	}
	filterExpr struct {
		of   expr // nil: the text of a filter or set block, passed in by it
		name string
		args argExprs
	}
	testExpr struct {
		of     expr
		name   string
		args   argExprs
		negate bool
	}
	condExpr struct{ cond, then, otherwise expr } // otherwise may be nil
	andExpr  struct{ a, b expr }
	orExpr   struct{ a, b expr }
	notExpr  struct{ x expr }
	signExpr struct {
		x   expr
		neg bool
	}
	binaryExpr struct {
		op   string
		a, b expr
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []string // ==, !=, <, <=, >, >=, in, not in
		rest  []expr
	}
)

// argExprs are the arguments of a call.
type argExprs struct {
	pos          []expr
	names        []string // of kw
	kw           []expr
	star, double expr // *args and **kwargs, may be nil
}

// stmt is a statement of the tree; exec is in exec.go.
type stmt interface {
	exec(vm *interp, f *frame, out *output) (flow, error)
}

// block is a sequence of statements with the lines they are on.
type block struct {
	stmts []stmt
	lines []int
}

// The statements.
type (
	textStmt   struct{ text string }
	outputStmt struct{ x expr }
	ifStmt     struct {
		conds     []expr
		bodies    []block
		otherwise block
	}
	forStmt struct {
		target    target
		seq       expr
		filter    expr // may be nil
		body      block
		otherwise block
		recursive bool
	}
	loopControl struct{ flow flow }
	setStmt     struct {
		target target
		value  expr
	}
	setBlockStmt struct {
		target target
		filter expr // may be nil
		body   block
	}
	macroStmt struct{ macro *macroDef }
	callStmt  struct {
		call   *callExpr
		caller *macroDef
	}
	filterStmt struct {
		filter expr
		body   block
	}
	withStmt struct {
		targets []target
		values  []expr
		body    block
	}
	scopeStmt struct{ body block } // generation blocks
)

// macroDef is a macro or the body of a call block.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last len(defaults) parameters
	body     block
	// varargs, kwargs: whether the body mentions these names. Only then does
	// the macro take arguments beyond its parameters.
	varargs, kwargs, caller bool
}

// target is what an assignment assigns to: exactly one of the three.
type target struct {
	name  string
	attr  string   // with name: an attribute of a namespace
	parts []target // a tuple
}
