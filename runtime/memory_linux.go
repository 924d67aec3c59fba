package runtime

import (
	"os"
	"strconv"
	"strings"
)

// availableMemory is MemAvailable of /proc/meminfo, or what the control group still allows where that is less.
func availableMemory() int64 {
	free := int64(fallbackMemory)
	info, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
				if kib, err := strconv.ParseInt(f[1], 10, 54); err == nil {
					free = kib << 10
				}
			}
		}
	}
	limit, limited := readBytes("/sys/fs/cgroup/memory.max")
	used, _ := readBytes("/sys/fs/cgroup/memory.current")
	if limited {
		free = min(free, max(limit-used, 0))
	}
	return free
}

// readBytes reads a file that holds one number; "max" and everything else gives false.
func readBytes(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
