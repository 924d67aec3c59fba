package main

import (
	"encoding/binary"
	"os"
	"reflect"
	"syscall"
	"time"
	"unsafe"
)

// shiftClock sets this process's clock ahead, by whole seconds, or behind, as far as the process can see: from now on time.Now jumps to
// a function of ours. The monotonic clock stays as it is.
func shiftClock(ahead time.Duration) error {
	shifted = time.Now()
	*(*uint64)(unsafe.Pointer(&shifted)) += uint64(ahead/time.Second) << 30 // a time begins with a flag, 33 bits of seconds and 30 of nanoseconds

	to := uint64(reflect.ValueOf(shiftedNow).Pointer())
	jump := append(binary.LittleEndian.AppendUint64([]byte{0x49, 0xbb}, to), 0x41, 0xff, 0xe3) // MOVQ $to, R11; JMP R11
	f := time.Now
	now := **(**unsafe.Pointer)(unsafe.Pointer(&f)) // a function is a pointer to that of its code
	page := os.Getpagesize()
	begin := int(uintptr(now) % uintptr(page))
	text := unsafe.Slice((*byte)(unsafe.Add(now, -begin)), (begin+len(jump)+page-1)/page*page)
	if err := syscall.Mprotect(text, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC); err != nil {
		return err
	}
	copy(text[begin:], jump)
	return syscall.Mprotect(text, syscall.PROT_READ|syscall.PROT_EXEC)
}

var shifted time.Time // when this process began, by its own clock

func shiftedNow() time.Time { return shifted.Add(time.Since(shifted)) }
