package runtime

// totalMemory is MemTotal of /proc/meminfo; 0 where it doesn't say.
func totalMemory() int64 {
	kib, _ := readField("/proc/meminfo", "MemTotal:")
	return kib << 10
}
