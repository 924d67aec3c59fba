#!/usr/bin/env bash
# Makes a model of each weight type for compare.sh but F32 and those that need an importance matrix, all of whose matrices
# have that type: Q8_0, Q5_0, Q5_1, Q4_0, F16 and BF16 from SmolLM2, a Q4_1 file, and K types, IQ4_NL, IQ4_XS and MXFP4 from
# a made-up llama with rows of 1024 and 2816, whole blocks of 256. For Q4_1 SmolLM2 stays as it is, with its embedding table
# of Q8_0. They are for speed: what is requantised says less than SmolLM2, and the made-up llama nothing.
#   bench/types.sh PEERS SMOLLM2.gguf
# Writes PEERS/types/*.gguf. Then: bench/compare.sh --peers PEERS --models "$(ls -m PEERS/types/*.gguf | tr -d ' \n')"
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
peers=$(cd "$1" && pwd)
small=$(realpath "$2")
mkdir -p "$peers/types"

# quantise makes OUT of FROM unless it is there.
quantise() { # FROM OUT TYPE [FLAG]...
	local log=${2%.gguf}.log
	[ ! -f "$2" ] || return 0
	if ! "$peers/build-llama/bin/llama-quantize" --allow-requantize --pure "${@:4}" "$1" "$2.part" "$3" > "$log" 2>&1; then
		echo "types: llama-quantize $3; the end of $log:" >&2
		tail -n 15 "$log" >&2
		exit 1
	fi
	mv "$2.part" "$2"
}

[ -e "$peers/types/smollm2-135m-q4_1.gguf" ] || ln -s "$small" "$peers/types/smollm2-135m-q4_1.gguf"
for type in Q8_0 Q5_0 Q5_1 Q4_0 F16 BF16; do
	quantise "$small" "$peers/types/smollm2-135m-${type,,}.gguf" "$type"
done
wide=$peers/types/synth-llama-f16.gguf
if [ ! -f "$wide" ]; then
	python3 "$(dirname "$0")/synth.py" "$small" "$wide.part"
	mv "$wide.part" "$wide"
fi
for type in Q2_K Q3_K_S Q4_K Q5_K Q6_K IQ4_NL IQ4_XS; do
	quantise "$wide" "$peers/types/synth-llama-${type,,}.gguf" "$type"
done
quantise "$wide" "$peers/types/synth-llama-mxfp4.gguf" Q4_0 --tensor-type attn=mxfp4 --tensor-type ffn=mxfp4 \
	--output-tensor-type mxfp4 --token-embedding-type mxfp4
