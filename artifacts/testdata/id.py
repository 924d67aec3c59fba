#!/usr/bin/env python3
"""Writes tiny.bundle and prints its model ID, from docs/manifest.md and hashlib alone.

The model is two parts: 5 bytes "a" and 32769 bytes "b". Run in this folder.
"""
import hashlib
import struct

LEAF = 16 << 10  # also the piece length of files this small


def sha256(b):
    return hashlib.sha256(b).digest()


def root(pieces):
    level = list(pieces)
    pad = bytes(32)  # the zero leaf; a piece is one leaf here
    while len(level) & (len(level) - 1):
        level.append(pad)
    while len(level) > 1:
        level = [sha256(level[i] + level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


parts = [b"a" * 5, b"b" * (2 * LEAF + 1)]
cut = [[p[i:i + LEAF] for i in range(0, len(p), LEAF)] for p in parts]
roots = [root([sha256(c) for c in cs]) for cs in cut]
table = b"".join(struct.pack("<Q", len(p)) + r for p, r in zip(parts, roots))
count = struct.pack("<I", len(parts))
print(hashlib.sha256(b"starling/model/1" + count + table).hexdigest())

manifest = b"STARMF\x00\x01" + count + table
manifest += b"".join(sha256(c) for cs in cut if len(cs) > 1 for c in cs)
bundle = b"STARBN\x00\x01" + struct.pack("<I", len(manifest)) + manifest
bundle += b"".join(hashlib.sha1(c).digest() for cs in cut for c in cs)
with open("tiny.bundle", "wb") as f:
    f.write(bundle)
