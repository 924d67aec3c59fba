"""Prints the SHA-256 of every tensor of GGUF files, dequantised by the gguf Python package to little-endian float32.

    pip install gguf
    python tools/golden/dequant.py ../shared/golden/{quants/*,deepseek_v4_mxfp4/model}.gguf > kernels/testdata/dequant.json

It adds made-up blocks, which make_blocks in this file and madeUpBlocks in kernels/dequant_test.go write alike.

The kernels tests compare Matrix.Row with these digests. The output names the package's version; it is a function of the
files alone, so running it again must give no difference.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize


# Of each type whose blocks are made up, the offsets of a block's binary16 scales.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [],
}
BLOCKS = 1024
EDGES = {2: 0x7BFF, 3: 0xFBFF, 4: 0x0001, 5: 0x8000}  # scales of every eighth block: largest, least, denormal, -0


def make_blocks(name: str) -> np.ndarray:
    """Blocks of bytes from xorshift64, of every eight one zero and one all ones but for its scales, which are finite."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    data = bytearray(BLOCKS * size)
    state, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    for i in range(len(data)):
        state ^= state << 13 & mask
        state ^= state >> 7
        state ^= state << 17 & mask
        kind = i // size % 8
        data[i] = 0 if kind == 0 else 0xFF if kind == 1 else state >> 56
    for block in range(BLOCKS):
        at = block * size
        for off in HALVES[name]:
            scale = int.from_bytes(data[at + off : at + off + 2], "little") & 0xBFFF
            data[at + off : at + off + 2] = EDGES.get(block % 8, scale).to_bytes(2, "little")
        if name == "IQ1_M":  # the scale's bits are the highest four of each of four words
            data[at + 55] &= 0xBF
            if block % 8 in EDGES:
                for j in range(4):
                    data[at + 49 + 2 * j] = data[at + 49 + 2 * j] & 15 | (EDGES[block % 8] >> 4 * j & 15) << 4
        if name == "MXFP4" and data[at] == 0xFF:
            data[at] = 0xFE
    return np.frombuffer(bytes(data), dtype=np.uint8).reshape(1, -1)


def digest(data, tensor_type) -> str:
    values = dequantize(data, tensor_type)
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()


def main() -> None:
    files = {}
    for path in sorted(map(pathlib.Path, sys.argv[1:])):
        files[f"{path.parent.name}/{path.name}"] = {
            t.name: {"type": t.tensor_type.name, "sha256": digest(t.data, t.tensor_type)}
            for t in GGUFReader(path).tensors
            if t.tensor_type.name != "I32"
        }
    blocks = {name: digest(make_blocks(name), GGMLQuantizationType[name]) for name in HALVES}
    json.dump({"gguf": importlib.metadata.version("gguf"), "files": files, "blocks": blocks}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
