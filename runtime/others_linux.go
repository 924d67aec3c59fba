package runtime

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newOthers counts the machine's processors.
func newOthers() *others {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return &others{}
	}
	return &others{processors: bytes.Count(stat, []byte("\ncpu"))}
}

// tick is the unit of /proc/stat: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// times reads how long all processors and this process have worked. The first line of /proc/stat is "cpu" and ticks of
// user, nice, system, idle, iowait, irq and softirq time, and more.
func (o *others) times() (busy, own time.Duration, ok bool) {
	fd, err := unix.Open("/proc/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	n, err := unix.Read(fd, o.buf[:])
	unix.Close(fd)
	var usage unix.Rusage
	if err != nil || n < 0 || unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0, 0, false
	}
	busy, ok = parseBusy(o.buf[:n])
	return busy, time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), ok
}

// parseBusy adds up the working times of the first line of /proc/stat.
func parseBusy(stat []byte) (time.Duration, bool) {
	line, found := bytes.CutPrefix(stat, []byte("cpu "))
	if !found {
		return 0, false
	}
	field, ticks, digits := 0, int64(0), 0
	var v int64
	for _, c := range line {
		if c >= '0' && c <= '9' {
			v, digits = 10*v+int64(c-'0'), digits+1
			continue
		}
		if digits > 0 {
			if field != 3 && field != 4 && field < 7 { // not idle, not iowait
				ticks += v
			}
			field, v, digits = field+1, 0, 0
		}
		if c == '\n' {
			break
		}
	}
	return time.Duration(ticks) * tick, field >= 7
}
