package node

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Hours are the times of the day at which a node works for others, by the clock on the wall: where clocks are put forward or
// back, 22:00 is still when they show 22:00. None mean always.
type Hours []hours

// hours last from a minute of the day to another, that one excluded; across midnight where the second is the smaller one.
type hours struct{ from, to int }

// ParseHours reads ranges such as "22:00-07:00", separated by commas.
func ParseHours(text string) (Hours, error) {
	var list Hours
	for part := range strings.SplitSeq(text, ",") {
		first, last, ok := strings.Cut(strings.TrimSpace(part), "-")
		from, errFrom := minuteOfDay(first)
		to, errTo := minuteOfDay(last)
		if !ok || errFrom != nil || errTo != nil || from == to || from == dayMinutes {
			return nil, fmt.Errorf("hours %q: write from when to when, such as 22:00-07:00, or several such ranges with commas between", text)
		}
		list = append(list, hours{from, to})
	}
	return list, nil
}

// dayMinutes is 24:00.
const dayMinutes = 24 * 60

func minuteOfDay(text string) (int, error) {
	h, m, ok := strings.Cut(strings.TrimSpace(text), ":")
	hour, errHour := strconv.ParseUint(h, 10, 8)
	minute, errMinute := strconv.ParseUint(m, 10, 8)
	at := int(hour)*60 + int(minute)
	if !ok || errHour != nil || errMinute != nil || minute > 59 || at > dayMinutes {
		return 0, fmt.Errorf("%q is no time of the day", text)
	}
	return at, nil
}

// String writes the hours as ParseHours reads them.
func (h Hours) String() string {
	var parts []string
	for _, r := range h {
		parts = append(parts, fmt.Sprintf("%02d:%02d-%02d:%02d", r.from/60, r.from%60, r.to/60, r.to%60))
	}
	return strings.Join(parts, ",")
}

// open reports whether a node with these hours works at a time, in the zone of which it is.
func (h Hours) open(now time.Time) bool {
	at := now.Hour()*60 + now.Minute()
	for _, r := range h {
		if r.from < r.to && r.from <= at && at < r.to || r.from > r.to && (at >= r.from || at < r.to) {
			return true
		}
	}
	return len(h) == 0
}
