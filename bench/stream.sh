#!/usr/bin/env bash
# stream.sh: how fast a model decodes that does not fit memory, against the disk's own speed.
#
#   bench/stream.sh [-s STARLING] [-l LIMIT_MIB] [-n TOKENS] [-t THREADS] MODEL.gguf
#
# Reads MODEL (one file, not a split set) once, past the cache, to measure the disk; then decodes in a control group (version
# 1 or 2; root) whose memory is limited to LIMIT_MIB, by default 60 % of the file. Prints tokens/s, the bytes of weights that
# each token needs (the layers and the head), and
#
#   ratio = tokens/s × bytes per token / sequential bandwidth
#
# which is 1 where every token reads all these at the disk's full speed, and more where part of the model stays in
# memory. Below 0.8 something is wrong.
set -euo pipefail

starling=$(dirname "$0")/../bin/starling limit= tokens=8 threads=
while getopts s:l:n:t: flag; do
	case $flag in
	s) starling=$OPTARG ;;
	l) limit=$OPTARG ;;
	n) tokens=$OPTARG ;;
	t) threads=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
model=${1:?which model}
size=$(stat -c %s "$model")
limit=${limit:-$((size * 6 / 10 >> 20))}

# A group of its own below the root, of whichever version has the memory controller.
if own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) && [ -n "$own" ]; then
	group=/sys/fs/cgroup/memory/starling-stream-$$
	file=memory.limit_in_bytes
else
	group=/sys/fs/cgroup/starling-stream-$$
	file=memory.max
fi
mkdir "$group"
trap 'rmdir "$group" 2>/dev/null || { sleep 1; rmdir "$group"; }' EXIT
echo $((limit << 20)) >"$group/$file"

bandwidth() { # bytes a second, past the cache
	local began ended
	began=$(date +%s%N)
	dd if="$model" of=/dev/null bs=8M iflag=direct status=none
	ended=$(date +%s%N)
	echo $((size * 1000000000 / (ended - began)))
}
forget() { dd if="$model" iflag=nocache count=0 status=none; } # drops the file from the cache

before=$(bandwidth)
forget
report=$(sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
	"$starling" bench -m "$model" -p 0 -n "$tokens" -r 1 ${threads:+-t $threads} --no-limits --pack off --kv-memory 64MiB --json)
forget
after=$(bandwidth)
python3 - "$report" "$before" "$after" "$limit" <<'PY'
import json, sys
report, before, after, limit = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
result, needed = report["results"][0], report["model"]["pass_bytes"]
disk = (before + after) / 2
print(f"{report['model']['file']}: {needed / 2**20:.0f} MiB of weights a token in {limit} MiB of memory, {report['threads']} threads")
print(f"disk {before / 1e6:.0f} and {after / 1e6:.0f} MB/s before and after; {result['test']} {result['tps']:.3f} t/s")
print(f"ratio {result['tps'] * needed / disk:.2f}")
PY
