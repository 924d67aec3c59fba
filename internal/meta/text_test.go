package meta

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// What no committed text may contain.
var unwanted = []struct {
	re  *regexp.Regexp
	why string
}{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`), "unfinished work is an issue, not a comment"},
	{regexp.MustCompile(`(^|[^\w.$~/-])/(home|root|Users|tmp|work|mnt|private)/[\w.]`), "a path of somebody's machine"},
	{regexp.MustCompile(`(?i)\b[a-z]:\\+users\\`), "a path of somebody's machine"},
	{regexp.MustCompile(`^(<{7}|>{7}) `), "a merge conflict"},
}

func checkTexts(texts map[string]string) (findings []string) {
	for name, text := range texts {
		for i, line := range strings.Split(text, "\n") {
			for _, u := range unwanted {
				if hit := u.re.FindString(line); hit != "" {
					findings = append(findings, fmt.Sprintf("%s:%d: %q: %s", name, i+1, strings.TrimSpace(hit), u.why))
				}
			}
		}
	}
	return findings
}

func TestTexts(t *testing.T) { report(t, checkTexts(repository(t).texts(t))) }

func TestTextsFindsWhatIsWrong(t *testing.T) {
	expect(t, checkTexts(map[string]string{
		"a.md":  "fine\nTO" + "DO: more",
		"b.go":  "package b // FIX" + "ME",
		"c.txt": "in /ho" + "me/me/x and https://example.com/home/page and ./tmp/x and $HOME/tmp/x",
		"d.txt": `C:\U` + `sers\me`,
		"e.txt": "AXXXB no TODOs here, mktemp under /tmp",
		"f.go":  "<<<<<<" + "< ours",
	}), `a.md:2: "TO`, `b.go:1: "FIX`, `c.txt:1: "/ho`, `d.txt:1: "C:`, `f.go:1: "<<<<`)
}
