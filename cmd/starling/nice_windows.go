package main

import "golang.org/x/sys/windows"

// setNice lowers the process's priority class: below normal up to 9, idle from 10 on.
func setNice(n int) error {
	class := uint32(windows.BELOW_NORMAL_PRIORITY_CLASS)
	if n >= 10 {
		class = windows.IDLE_PRIORITY_CLASS
	}
	return windows.SetPriorityClass(windows.CurrentProcess(), class)
}
