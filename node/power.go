package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// power says whether a machine runs on a battery, from what Linux tells in a folder such as /sys/class/power_supply; known is
// false where there is no such folder or nothing in it. A machine with a mains supply that is off, or with none and a battery
// that is being discharged, runs on the battery; batteries of mice and the like ("scope" Device) don't count.
func power(dir string) (battery, known bool) {
	supplies, err := os.ReadDir(dir)
	if err != nil {
		return false, false
	}
	read := func(supply, file string) string {
		b, _ := os.ReadFile(filepath.Join(dir, supply, file)) // what a supply doesn't tell is ""
		return strings.TrimSpace(string(b))
	}
	mains, online, discharging := false, false, false
	for _, s := range supplies {
		if read(s.Name(), "scope") == "Device" {
			continue
		}
		switch read(s.Name(), "type") {
		case "Mains", "USB":
			mains, online = true, online || read(s.Name(), "online") == "1"
		case "Battery":
			known = true
			discharging = discharging || read(s.Name(), "status") == "Discharging"
		}
	}
	if !known { // a desktop
		return false, mains
	}
	return discharging && !online, true
}

const powerDir = "/sys/class/power_supply"

// meteredTimeout bounds a question to the system's bus.
const meteredTimeout = 2 * time.Second

// metered says whether the system counts this machine's way to the internet as one that costs by the byte. NetworkManager is
// asked, over the bus's own tool; known is false where there is none, or where it doesn't know.
func metered(ctx context.Context) (yes, known bool) {
	ctx, cancel := context.WithTimeout(ctx, meteredTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "busctl", "get-property", "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager",
		"org.freedesktop.NetworkManager", "Metered").Output()
	if err != nil {
		return false, false
	}
	return parseMetered(string(out))
}

// parseMetered reads NetworkManager's property, an NMMetered: 1 yes, 2 no, 3 and 4 the same as guesses, else unknown.
func parseMetered(text string) (yes, known bool) {
	switch strings.TrimSpace(text) {
	case "u 1", "u 3":
		return true, true
	case "u 2", "u 4":
		return false, true
	}
	return false, false
}
