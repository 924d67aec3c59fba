package wire

import "time"

// ClockSkew is by how much two clocks may differ, each of which is ten minutes off at most. Who judges by its own clock a time that
// somebody else has set, in a certificate, a grant, a listing or an invite, allows for so much.
const ClockSkew = 20 * time.Minute
