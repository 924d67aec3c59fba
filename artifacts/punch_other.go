//go:build !linux

package artifacts

import (
	"errors"
	"os"
)

// punch is not to be had here.
func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }

func canPunch(*os.File) error { return errors.ErrUnsupported }
