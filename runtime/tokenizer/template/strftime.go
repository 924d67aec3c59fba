package template

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// goLayouts maps strftime's directives to layouts of package time.
var goLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan",
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'j': "002", 'z': "-0700", 'Z': "MST",
	'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006",
}

// strftime formats t as C's strftime does in the C locale. "%-d" and the like
// have no leading zeros.
func (vm *interp) strftime(format string, t time.Time) (any, error) {
	if err := vm.alloc(16 * len(format)); err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		short := format[i] == '-' && i+1 < len(format)
		if short {
			i++
		}
		s := ""
		switch c := format[i]; c {
		case '%':
			s = "%"
		case 'n':
			s = "\n"
		case 't':
			s = "\t"
		case 'f':
			s = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case 's':
			s = strconv.FormatInt(t.Unix(), 10)
		case 'w':
			s = strconv.Itoa(int(t.Weekday()))
		case 'u':
			s = strconv.Itoa((int(t.Weekday())+6)%7 + 1)
		default:
			layout, ok := goLayouts[c]
			if !ok {
				return nil, fmt.Errorf("strftime_now() does not know %%%c", c)
			}
			s = t.Format(layout)
		}
		if short && len(s) > 1 {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
