package runtime

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// AvailableMemory is MemAvailable of /proc/meminfo, or what the control groups of this process still allow where that is
// less. Both count the cache of files as available.
func AvailableMemory() int64 {
	free := int64(fallbackMemory)
	if kib, ok := readField("/proc/meminfo", "MemAvailable:"); ok {
		free = kib << 10
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return free
	}
	for line := range strings.Lines(string(groups)) { // "0::/path", or of version 1 "4:memory:/path"
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			free = min(free, groupMemory("/sys/fs/cgroup", parts[2], "memory.max", "memory.current", "inactive_file", "active_file"))
		case parts[1] == "memory":
			free = min(free, groupMemory("/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes",
				"total_inactive_file", "total_active_file"))
		}
	}
	return free
}

// groupMemory is what a control group and those around it allow, from the files that the kernel has there.
func groupMemory(mount, group, limitFile, usedFile string, cache ...string) int64 {
	free := int64(1) << 62
	for ; ; group = path.Dir(group) {
		dir := path.Join(mount, group)
		if limit, limited := readBytes(path.Join(dir, limitFile)); limited {
			used, _ := readBytes(path.Join(dir, usedFile))
			for _, field := range cache {
				n, _ := readField(path.Join(dir, "memory.stat"), field)
				used -= n
			}
			free = min(free, max(limit-max(used, 0), 0))
		}
		if group == "/" || group == "." {
			return free
		}
	}
}

// readField reads the number after a name in a file of lines.
func readField(file, name string) (int64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 53)
			return n, err == nil
		}
	}
	return 0, false
}

// readBytes reads a file that holds one number; "max" and everything else gives false.
func readBytes(file string) (int64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
