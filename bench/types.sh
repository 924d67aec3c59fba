#!/usr/bin/env bash
# Makes one model of every weight type for compare.sh: of SmolLM2's shape where rows of 576 allow it, and of a made-up
# llama with rows of 1024 and 2816 for the types in blocks of 256. They are for speed; the latter's output is noise.
#   bench/types.sh PEERS SMOLLM2.gguf
# Writes PEERS/types/*.gguf. Then: bench/compare.sh --peers PEERS --models "$(ls -m PEERS/types/*.gguf | tr -d ' \n')"
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
peers=$1 small=$2
quantize=$peers/build-llama/bin/llama-quantize
mkdir -p "$peers/types"
for type in Q8_0 Q5_0 Q5_1 Q4_0 F16 BF16; do
	out=$peers/types/smollm2-135m-${type,,}.gguf
	[ -f "$out" ] || { "$quantize" --allow-requantize --pure "$small" "$out.part" "$type" > "$peers/types/log" 2>&1 && mv "$out.part" "$out"; }
done
wide=$peers/types/synth-llama-f16.gguf
[ -f "$wide" ] || { python3 "$(dirname "$0")/synth.py" "$small" "$wide.part" && mv "$wide.part" "$wide"; }
for type in Q4_K Q5_K Q6_K; do
	out=$peers/types/synth-llama-${type,,}.gguf
	[ -f "$out" ] || { "$quantize" --pure "$wide" "$out.part" "$type" > "$peers/types/log" 2>&1 && mv "$out.part" "$out"; }
done
