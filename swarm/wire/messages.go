package wire

// newMessage returns an empty message of type t, or nil if there is none.
func newMessage(t Type) Message {
	switch t {
	case TypeStageOpen:
		return new(StageOpen)
	case TypeStageOpened:
		return new(StageOpened)
	case TypeChunk:
		return new(Chunk)
	case TypeRewind:
		return new(Rewind)
	case TypeHandover:
		return new(Handover)
	case TypeInherit:
		return new(Inherit)
	case TypeRows:
		return new(Rows)
	case TypeSeam:
		return new(Seam)
	case TypeSeamCredit:
		return new(SeamCredit)
	case TypeStageClose:
		return new(StageClose)
	case TypeStageClosed:
		return new(StageClosed)
	case TypeProgress:
		return new(Progress)
	case TypeRefusal:
		return new(Refusal)
	case TypePing:
		return new(Ping)
	case TypePong:
		return new(Pong)
	case TypeKVSlice:
		return new(KVSlice)
	case TypeKVAck:
		return new(KVAck)
	case TypeSessionOpen:
		return new(SessionOpen)
	case TypeSessionOpened:
		return new(SessionOpened)
	case TypeToken:
		return new(Token)
	case TypeDone:
		return new(Done)
	case TypeCancel:
		return new(Cancel)
	case TypeBundleRequest:
		return new(BundleRequest)
	case TypeBundle:
		return new(Bundle)
	}
	return newSwarmMessage(t)
}
