package gguf

// retired names the ids ggml used once and withdrew, so that an error can say what they were.
var retired = map[Type]string{
	4: "Q4_2", 5: "Q4_3",
	31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}

// ikOnly names the ids that only ik_llama.cpp gives a meaning (its ggml.h).
var ikOnly = map[Type]string{
	133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN",
	137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K", 140: "IQ5_K", 141: "IQ6_K",
	144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS",
}
