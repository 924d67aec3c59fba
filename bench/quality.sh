#!/usr/bin/env bash
# Compares what quantised activations cost us and llama.cpp: the KL divergence of the logits of a quantised file from those
# of float32 arithmetic on the same weights, each engine against itself, on the same positions of a text.
#   bench/quality.sh [--chunks N] PEERS TEXT MODEL...
# PEERS holds build-llama/bin (see bench/README.md). Of TEXT whole chunks of 512 tokens count: at most N, and there must be two.
# PEERS/out keeps, for the same content another time, the expanded weights (4 bytes each) and llama.cpp's logits of them
# (510 bytes per chunk and entry of the vocabulary: 25 MB a chunk where there are 49,152).
# llama.cpp computes the same products in several ways (flash attention or not, KV types, sizes of a batch), and their means
# differ by up to a tenth, by nothing but rounding; so it runs in each of SETTINGS, to show how much that is.
# Exit status 1 when our mean divergence exceeds llama.cpp's in the first by more than the standard error that it prints, for any model.
set -euo pipefail
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
# Settings of llama-perplexity, one a line; the first is what its default, auto, comes to.
SETTINGS="
-fa on
-fa off
-fa off -ctk f32 -ctv f32
-fa on -ub 16
"
chunks=0
if [ "${1-}" = --chunks ]; then
	[[ "${2-}" =~ ^[1-9][0-9]*$ ]] || usage
	chunks=$2
	shift 2
fi
[ $# -ge 3 ] || usage
peers=$(cd "$1" && pwd)
text=$(realpath "$2")
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$peers/build-llama/bin
mkdir -p "$peers/out"
threads=$(nproc)

# fail says what failed, and how its log ends.
fail() {
	echo "quality: $1; the end of $2:" >&2
	tail -n 15 "$2" >&2
	exit 1
}

# field prints word N of what llama-perplexity's log says after a name and a colon; a negative zero is a zero.
#   "Mean    KLD:   0.001234 ±   0.000056", "Same top p: 97.123 ± 0.456 %"
field() {
	awk -F: -v name="^$2" -v n="$3" '!found && $1 ~ name { split($2, word, " "); sub(/^-0[.]0*$/, "0.000000", word[n]); print word[n]; found = 1 }
		END { exit !found }' "$1" || fail "no $2" "$1"
}

status=0
echo "| model | engine | mean KL divergence | median | 99 % | max | same best token |"
echo "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
for model in "$@"; do
	model=$(realpath "$model")
	name=$(basename "$model" .gguf)
	weights=$(sha256sum < "$model" | cut -c 1-12)
	words=$(sha256sum < "$text" | cut -c 1-12)
	log=$peers/out/$name
	wide=$peers/out/$name-$weights-f32.gguf
	base=$peers/out/$name-$weights-$words-$chunks.logits
	if [ ! -f "$wide" ]; then
		"$bin/llama-quantize" --allow-requantize "$model" "$wide.part" F32 "$threads" > "$log.quantize.log" 2>&1 || fail "llama-quantize failed" "$log.quantize.log"
		mv "$wide.part" "$wide"
	fi
	if [ ! -f "$base" ]; then
		some=()
		[ "$chunks" = 0 ] || some=(--chunks "$chunks")
		"$bin/llama-perplexity" -m "$wide" -f "$text" -c 512 "${some[@]}" -t "$threads" -fa off -ctk f32 -ctv f32 --kl-divergence-base "$base.part" \
			> "$log.base.log" 2>&1 || fail "llama-perplexity failed" "$log.base.log"
		# It exits with 0 also where the text is too short or a batch fails.
		grep -q 'Final estimate: PPL' "$log.base.log" || fail "llama-perplexity came to no end" "$log.base.log"
		mv "$base.part" "$base"
	fi
	limit=
	while read -r setting; do
		[ -n "$setting" ] || continue
		# shellcheck disable=SC2086 # a setting is several words
		"$bin/llama-perplexity" -m "$model" -f "$text" -c 512 -t "$threads" $setting --kl-divergence-base "$base" --kl-divergence \
			> "$log.kld.log" 2>&1 || fail "llama-perplexity --kl-divergence failed" "$log.kld.log"
		theirs=$(field "$log.kld.log" 'Mean +KLD' 1)
		error=$(field "$log.kld.log" 'Mean +KLD' 3)
		median=$(field "$log.kld.log" 'Median +KLD' 1)
		most=$(field "$log.kld.log" '99[.]0% +KLD' 1)
		max=$(field "$log.kld.log" 'Maximum +KLD' 1)
		same=$(field "$log.kld.log" 'Same top p' 1)
		echo "| $name | llama.cpp $setting | $theirs ± $error | $median | $most | $max | $same % |"
		[ -n "$limit" ] || limit=$(awk -v mean="$theirs" -v error="$error" 'BEGIN { printf "%.6f", mean + error }')
	done <<< "$SETTINGS"
	passed=yes
	(cd "$root" && go test ./runtime -count=1 -timeout 5h -run '^TestQuality$' -v -quality.model "$model" -quality.reference "$wide" \
		-quality.text "$text" -quality.chunks "$chunks" -quality.limit "$limit") > "$log.ours.log" 2>&1 || passed=
	line=$(grep -o 'quality: .*' "$log.ours.log") || fail "no divergence of ours" "$log.ours.log"
	sed -E "s/.*mean (\S+), median (\S+), 99 % (\S+), max (\S+), same best token (\S+) %.*/| $name | starling | \1 | \2 | \3 | \4 | \5 % |/" <<< "$line"
	if [ -z "$passed" ]; then
		status=1
		echo "quality: $name: $(grep -o 'the mean divergence .*' "$log.ours.log" || echo "see $log.ours.log")" >&2
	fi
done
exit $status
