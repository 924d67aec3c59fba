package main

// pauseAMD64 writes Pause for amd64: PAUSE takes 40 to 140 cycles and leaves the core to its other hardware thread.
func pauseAMD64(f *file) { pause(f, "PAUSE") }

// pauseARM64 writes Pause for arm64. YIELD does nothing on most cores; a barrier for instructions waits some ten
// nanoseconds.
func pauseARM64(f *file) { pause(f, "ISB $15") }

func pause(f *file, instruction string) {
	f.decl.WriteString("// Pause tells the processor that the caller spins, waiting for another thread: it takes tens of nanoseconds.\nfunc Pause()\n\n")
	f.body.WriteString("// func Pause()\nTEXT ·Pause(SB), NOSPLIT, $0-0\n\t" + instruction + "\n\tRET\n")
}
