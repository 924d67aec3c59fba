package wire

// newSwarmMessage returns an empty offer, listing or membership message (types 80–99)
// of type t, or nil if there is none.
func newSwarmMessage(t Type) Message {
	switch t {
	case TypeOffersPush:
		return new(OffersPush)
	case TypeOffersPull:
		return new(OffersPull)
	case TypeOffersReply:
		return new(OffersReply)
	case TypeListingsPush:
		return new(ListingsPush)
	case TypeListingsPull:
		return new(ListingsPull)
	case TypeListingsReply:
		return new(ListingsReply)
	case TypeHello:
		return new(Hello)
	case TypeRedeem:
		return new(Redeem)
	case TypeWelcome:
		return new(Welcome)
	case TypeAdmitted:
		return new(Admitted)
	case TypeJoinRefused:
		return new(JoinRefused)
	case TypeListPull:
		return new(ListPull)
	case TypeRevocationLists:
		return new(RevocationLists)
	}
	return nil
}
