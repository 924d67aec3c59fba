"""Prints the SHA-256 of every tensor of GGUF files, dequantised by the gguf Python package to little-endian float32.

    pip install gguf
    python tools/golden/dequant.py ../shared/golden/quants/*.gguf > kernels/testdata/dequant.json

The kernels tests compare Matrix.Row with these digests. The output names the package's version; it is a function of the
files alone, so running it again must give no difference.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def digest(tensor) -> str:
    values = dequantize(tensor.data, tensor.tensor_type)
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()


def main() -> None:
    files = {}
    for path in sorted(map(pathlib.Path, sys.argv[1:])):
        files[path.name] = {
            t.name: {"type": t.tensor_type.name, "sha256": digest(t)} for t in GGUFReader(path).tensors
        }
    json.dump({"gguf": importlib.metadata.version("gguf"), "files": files}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
