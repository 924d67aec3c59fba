package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// setNice lowers the priority of every thread of this process: on Linux each has its own, and a new one takes that of the
// thread that made it. So it goes on until a round finds no new thread.
func setNice(n int) error {
	done := map[string]bool{}
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil || done[t.Name()] {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, n); err != nil && err != unix.ESRCH {
				return err
			}
			done[t.Name()], again = true, true
		}
	}
	return nil
}
