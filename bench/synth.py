"""Writes a llama of random F16 weights, with the tokenizer of another llama file: synth.py BASE.gguf OUT.gguf"""

import random
import struct
import sys

WIDTH, FFN, HEADS, KV_HEADS, LAYERS = 1024, 2816, 16, 4, 16
CHANGED = {
    "general.name": "Synthetic llama", "general.file_type": 1, "llama.embedding_length": WIDTH, "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS, "llama.block_count": LAYERS,
    "llama.rope.dimension_count": WIDTH // HEADS, "llama.attention.key_length": WIDTH // HEADS, "llama.attention.value_length": WIDTH // HEADS,
}
ALIGN = 32
SIZES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}  # GGUF value types
STRING, ARRAY = 8, 9
F32, F16 = 0, 1


class Reader:
    def __init__(self, f):
        self.f = f

    def number(self, fmt):
        return struct.unpack(fmt, self.f.read(struct.calcsize(fmt)))[0]

    def string(self):
        return self.f.read(self.number("<Q"))

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of = self.number("<I")
            return of, [self.value(of) for _ in range(self.number("<Q"))]
        return self.number(SIZES[kind])


def string(s):
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    if kind == STRING:
        return string(v if isinstance(v, bytes) else v.encode())
    if kind == ARRAY:
        of, items = v
        return struct.pack("<IQ", of, len(items)) + b"".join(value(of, x) for x in items)
    return struct.pack(SIZES[kind], v)


def main(base, out):
    with open(base, "rb") as f:
        r = Reader(f)
        if f.read(4) != b"GGUF":
            sys.exit(f"synth: {base} is no GGUF file")
        r.number("<I"), r.number("<Q")
        pairs = []
        for _ in range(r.number("<Q")):
            key, kind = r.string().decode(), r.number("<I")
            pairs.append((key, kind, r.value(kind)))
    vocab = next(len(v[1]) for k, _, v in pairs if k == "tokenizer.ggml.tokens")
    kv_width = WIDTH // HEADS * KV_HEADS
    tensors = [("token_embd.weight", (WIDTH, vocab)), ("output_norm.weight", (WIDTH,))]
    for layer in range(LAYERS):
        for name, shape in [("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, kv_width)), ("attn_v", (WIDTH, kv_width)),
                            ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)), ("ffn_gate", (WIDTH, FFN)), ("ffn_up", (WIDTH, FFN)), ("ffn_down", (FFN, WIDTH))]:
            tensors.append((f"blk.{layer}.{name}.weight", shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, kind, v in pairs:
        head += string(key.encode()) + struct.pack("<I", kind) + value(kind, CHANGED.get(key, v))
    offset, sizes = 0, []
    for name, shape in tensors:
        kind = F32 if len(shape) == 1 else F16
        size = 4 if kind == F32 else 2
        for d in shape:
            size *= d
        head += string(name.encode()) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
        offset += -(-size // ALIGN) * ALIGN
        sizes.append(size)
    dice = random.Random(7)
    pool = struct.pack("<1048576e", *(dice.gauss(0, 0.02) for _ in range(1 << 20)))
    with open(out, "wb") as o:
        o.write(head + bytes(-len(head) % ALIGN))
        for (name, shape), size in zip(tensors, sizes):
            left = size
            while left > 0:
                if len(shape) == 1:
                    piece = struct.pack("<f", 1) * (left // 4)
                else:
                    at = 2 * dice.randrange(1 << 19)
                    piece = pool[at:at + min(left, len(pool) - at)]
                o.write(piece)
                left -= len(piece)
            o.write(bytes(-size % ALIGN))


if __name__ == "__main__":
    main(*sys.argv[1:])
