#!/usr/bin/env bash
# Compares what quantised activations cost us and llama.cpp: the KL divergence of the logits of a quantised file from those
# of float32 arithmetic on the same weights, each engine against itself, on the same positions of a text.
#   bench/quality.sh PEERS TEXT MODEL...
# PEERS holds build-llama/bin (see bench/README.md); the expanded weights go to PEERS/out (4 bytes a weight).
# Exit status 1 when our mean divergence exceeds llama.cpp's for a model.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
peers=$(cd "$1" && pwd) text=$(realpath "$2"); shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$peers/build-llama/bin
mkdir -p "$peers/out"
threads=$(nproc)
status=0
echo "| model | engine | mean KL divergence | median | 99 % | max | same best token |"
echo "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
for model in "$@"; do
	model=$(realpath "$model") name=$(basename "$model" .gguf)
	wide=$peers/out/$name-f32.gguf base=$peers/out/$name-f32.logits log=$peers/out/$name.kld
	[ -f "$wide" ] || { "$bin/llama-quantize" --allow-requantize "$model" "$wide.part" F32 "$threads" > "$log" 2>&1 && mv "$wide.part" "$wide"; }
	[ -f "$base" ] || { "$bin/llama-perplexity" -m "$wide" -f "$text" -c 512 -t "$threads" -fa off -ctk f32 -ctv f32 --kl-divergence-base "$base.part" > "$log" 2>&1 && mv "$base.part" "$base"; }
	"$bin/llama-perplexity" -m "$model" -f "$text" -c 512 -t "$threads" --kl-divergence-base "$base" --kl-divergence > "$log" 2>&1
	# "Mean    KLD:   0.001234 ±   0.000056", "Same top p: 97.123 ± 0.456 %"
	field() { grep -E "^$1" "$log" | head -1 | sed -E 's/^[^:]*: *//' | awk '{print $1}'; }
	theirs=$(field 'Mean +KLD')
	[ -n "$theirs" ] || { echo "quality: no divergence in $log" >&2; exit 1; }
	echo "| $name | llama.cpp | $theirs | $(field 'Median +KLD') | $(field '99\.0% +KLD') | $(field 'Maximum +KLD') | $(field 'Same top p') % |"
	if ! (cd "$root" && go test ./runtime -count=1 -timeout 5h -run '^TestQuality$' -v -quality.model "$model" -quality.reference "$wide" \
		-quality.text "$text" -quality.limit "$theirs") > "$log.ours" 2>&1; then
		status=1
	fi
	line=$(grep -o 'quality: .*' "$log.ours") || { cat "$log.ours" >&2; exit 1; }
	sed -E "s/.*mean ([0-9.]+), median ([0-9.]+), 99 % ([0-9.]+), max ([0-9.]+), same best token ([0-9.]+) %.*/| $name | starling | \1 | \2 | \3 | \4 | \5 % |/" <<< "$line"
done
exit $status
