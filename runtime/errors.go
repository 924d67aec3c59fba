package runtime

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by methods of an executor or sequence after Close.
var ErrClosed = errors.New("runtime: closed")

// CapacityError says that a reservation of KV memory does not fit beside the existing ones.
type CapacityError struct {
	Asked, Free int64 // bytes
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("runtime: the KV cache needs %d bytes and %d are free: close other sessions, ask for fewer tokens, or raise the KV limit", e.Asked, e.Free)
}

// ContextError says that more positions were asked for than the model was made for.
type ContextError struct {
	Asked, Limit int // positions
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("runtime: %d positions asked for, the model's context is %d: shorten the prompt or ask for fewer new tokens", e.Asked, e.Limit)
}

// ProfileError says that an executor cannot compute by a profile.
type ProfileError struct {
	Asked  Profile
	Reason string
}

func (e *ProfileError) Error() string {
	return fmt.Sprintf("runtime: profile %v: %s", e.Asked, e.Reason)
}

// FullError says that rows would exceed what a sequence reserved.
type FullError struct {
	Asked, Capacity int // positions
}

func (e *FullError) Error() string {
	return fmt.Sprintf("runtime: %d positions in a sequence that reserved %d", e.Asked, e.Capacity)
}

// PositionError says that rows were offered or asked for at a position that does not fit what the layer holds.
type PositionError struct {
	Layer     int
	Pos, Held int // the position given, the number of rows held
}

func (e *PositionError) Error() string {
	return fmt.Sprintf("runtime: layer %d holds %d rows, which does not fit position %d", e.Layer, e.Held, e.Pos)
}

// TailError says that a layer's tail, or what its window holds, is asked for at a position where it is not kept any more.
type TailError struct {
	Layer     int
	Pos, Held int // the position asked for, the number of positions that the layer has seen
}

func (e *TailError) Error() string {
	return fmt.Sprintf("runtime: layer %d has seen %d positions and does not keep what it had at position %d", e.Layer, e.Held, e.Pos)
}

// LayerError says that a layer is not among those of an executor or a sequence.
type LayerError struct {
	Layer int
	Have  Range
}

func (e *LayerError) Error() string {
	return fmt.Sprintf("runtime: layer %d is not here, where there is %v", e.Layer, e.Have)
}

// StepError says why a step of a Run makes no sense.
type StepError struct {
	Step   int // index in the Run
	Reason string
}

func (e *StepError) Error() string { return fmt.Sprintf("runtime: step %d: %s", e.Step, e.Reason) }

// NonFiniteError names the place where a NaN or infinity arose or arrived.
type NonFiniteError struct {
	Step  int    // index in the Run; 0 from ImportKV
	What  string // "seam", "rounded seam", "activations", "KV row", "hidden state", "logits"
	Layer int    // where it arose or would have been used; the model's layer count for the head
	Pos   int    // position in its sequence
}

func (e *NonFiniteError) Error() string {
	if e.What == roundedSeam {
		return fmt.Sprintf("runtime: a number of the residual stream before layer %d, position %d, is beyond the type of the rounded seam: ask for seams in bf16 or f32", e.Layer, e.Pos)
	}
	return fmt.Sprintf("runtime: NaN or infinity in %s at layer %d, position %d", e.What, e.Layer, e.Pos)
}

// WeightError says that a tensor of the model file has a NaN or infinite scale (or, of a dense type, value).
type WeightError struct {
	Tensor string
	Err    error // row, block and weight type
}

func (e *WeightError) Error() string {
	return fmt.Sprintf("runtime: tensor %s: %v: the file is damaged", e.Tensor, e.Err)
}

// Unwrap returns what was found.
func (e *WeightError) Unwrap() error { return e.Err }
