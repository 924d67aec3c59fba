#!/usr/bin/env python3
"""Lists and makes GGUF files with the gguf package of llama.cpp (pip install gguf), so that
runtime/gguf is checked against a reader and a writer that nobody here wrote.

  gguf_list.py list FILE...   one JSON object: file name -> listing (see listing())
  gguf_list.py make FILE      a small file with a value of every kind and a few tensors

The committed listings and file are made by, from the repository root (gguf 0.19.0):

  tools/golden/gguf_list.py make runtime/gguf/testdata/accepted/made-by-gguf-py.gguf
  tools/golden/gguf_list.py list runtime/gguf/testdata/accepted/made-by-gguf-py.gguf \
      $(cat runtime/gguf/testdata/listed.txt) > runtime/gguf/testdata/listings.json
"""

import hashlib
import json
import os
import sys

import numpy
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGMLQuantizationType


def listing(path):
    """Returns the metadata as [key, kind, element kind, elements, sha256 of the value's bytes] and
    the tensors as [name, type, dims in ggml's order, absolute offset, bytes]."""
    reader = GGUFReader(path)
    keys = []
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue  # the counts and the version, which the package shows as fields
        kind = field.types[0]
        # parts: key length, key, kind, [element kind, count,] then the value's parts
        parts = field.parts[3:]
        elem, count = kind, -1
        if kind == GGUFValueType.ARRAY:
            elem, count = GGUFValueType(int(parts[0][0])), int(parts[1][0])
            parts = parts[2:]
        raw = b"".join(p.tobytes() for p in parts)
        keys.append([field.name, kind.name.lower(), elem.name.lower(), count, hashlib.sha256(raw).hexdigest()])
    tensors = [
        [t.name, t.tensor_type.name, [int(d) for d in t.shape], int(t.data_offset), int(t.n_bytes)]
        for t in reader.tensors
    ]
    return {
        "size": os.path.getsize(path),
        "alignment": int(reader.alignment),
        "data": int(reader.data_offset),
        "keys": keys,
        "tensors": tensors,
    }


def make(path):
    w = GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    w.add_uint8("a.uint8", 255)
    w.add_int8("a.int8", -128)
    w.add_uint16("a.uint16", 65535)
    w.add_int16("a.int16", -32768)
    w.add_uint32("a.uint32", 2**32 - 1)
    w.add_int32("a.int32", -(2**31))
    w.add_uint64("a.uint64", 2**64 - 1)
    w.add_int64("a.int64", -(2**63))
    w.add_float32("a.float32", 0.1)
    w.add_float64("a.float64", 0.1)
    w.add_bool("a.true", True)
    w.add_bool("a.false", False)
    w.add_string("a.string", "héllo ▁wörld\n")
    w.add_array("b.strings", ["", "a", "▁the", "日本"])
    w.add_array("b.bools", [True, False, True])
    w.add_array("b.ints", [0, -1, 2**31 - 1])
    w.add_array("b.floats", [0.0, -1.5, 3.25])
    w.add_tensor("f32.weight", numpy.arange(12, dtype=numpy.float32).reshape(3, 4))
    w.add_tensor("f16.weight", numpy.arange(5, dtype=numpy.float16))
    w.add_tensor("i32", numpy.arange(6, dtype=numpy.int32).reshape(1, 2, 3))
    q8 = numpy.arange(2 * 68, dtype=numpy.uint8).reshape(2, 68)
    w.add_tensor("q8.weight", q8, raw_dtype=GGMLQuantizationType.Q8_0)
    q4k = numpy.arange(2 * 144, dtype=numpy.int64).astype(numpy.uint8).reshape(2, 144)
    w.add_tensor("q4k.weight", q4k, raw_dtype=GGMLQuantizationType.Q4_K)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def dump(listings):
    """One line per key and tensor, so that a change shows in a diff."""
    out = []
    for name, l in listings.items():
        lines = [f' "{k}": {l[k]}' for k in ("size", "alignment", "data")]
        for k in ("keys", "tensors"):
            rows = ",\n  ".join(json.dumps(r, ensure_ascii=False) for r in l[k])
            lines.append(f' "{k}": [\n  {rows}\n ]' if rows else f' "{k}": []')
        out.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(out) + "\n}\n"


def main():
    match sys.argv[1:]:
        case ["list", *paths] if paths:
            sys.stdout.write(dump({p: listing(p) for p in paths}))
        case ["make", path]:
            make(path)
        case _:
            sys.exit(__doc__)


main()
