package gguf

import "fmt"

// Refuse returns nil when the file says it is a language model, and otherwise says what it is and
// what to do. Such files parse like any other; this is for those who want to run one.
func (f *File) Refuse() error {
	typ, err := f.StringOr("general.type", "model")
	if err != nil {
		return err
	}
	arch, err := f.StringOr("general.architecture", "")
	if err != nil {
		return err
	}
	name := oneLine(f.Path)
	switch {
	case typ == "adapter":
		return fmt.Errorf("gguf: %s: this is a LoRA adapter, not a model: open the model it was made for", name)
	case typ == "mmproj" || arch == "clip":
		return fmt.Errorf("gguf: %s: this is a multimodal projector (mmproj), not a language model: open the model that goes with it", name)
	case typ == "imatrix" || arch == "imatrix":
		return fmt.Errorf("gguf: %s: this is an importance matrix for quantizing, not a model: open the model itself", name)
	case arch == "controlvector":
		return fmt.Errorf("gguf: %s: this is a control vector, not a model: open the model it was made for", name)
	case typ != "model":
		return fmt.Errorf("gguf: %s: general.type is %s, not \"model\": open a language model", name, quote(typ))
	case arch == "":
		return fmt.Errorf("gguf: %s: general.architecture is missing: not a language model", name)
	}
	return nil
}

// Refuse is [File.Refuse] for the whole model; it also refuses one without any tensor.
func (s *Set) Refuse() error {
	if err := s.Meta().Refuse(); err != nil {
		return err
	}
	if len(s.Tensors) == 0 {
		return fmt.Errorf("gguf: %s: there are no tensors, only metadata or a vocabulary: open a model with weights", oneLine(s.Meta().Path))
	}
	return nil
}
