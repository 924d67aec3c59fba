#!/usr/bin/env bash
# Compares starling with llama.cpp and ik_llama.cpp on this machine, alternating, and prints ratios with their spread.
#   bench/compare.sh --peers DIR [--mode quick|full] [--help for the rest]
# DIR holds build-llama/bin/llama-bench, build-ik/bin/llama-bench and models/*.gguf; bench/README.md says how to make it.
set -euo pipefail
exec python3 "$(dirname "$0")/compare.py" "$@"
