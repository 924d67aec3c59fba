"""Quantisers for Q4_K, Q5_K and Q6_K in numpy (the `gguf` package has only the decoders of these, and both for the others).

A super-block is 256 values.  Q4_K and Q5_K: 8 sub-blocks of 32 with x ≈ d·sc·q − dmin·m (6-bit sc and m); Q6_K: 16 sub-blocks
of 16 with x ≈ d·sc·(q − 32) (8-bit sc).  Scales are found by least squares over a range of tries, then everything is rounded with the
stored (f16 and integer) scales.

  python quantize.py        # check against gguf.dequantize
"""
import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
TRIES = np.arange(-1.0, 1.01, 0.1)                          # how far the largest quant is moved, in steps


def affine(x, top):
    """Scale and minimum (both ≥ 0) of each row of x for x ≈ scale·q − minimum, q in 0…top, weighted by |x| + rms."""
    low, high = np.minimum(x.min(-1, keepdims=True), 0), x.max(-1, keepdims=True)
    w = np.abs(x) + np.sqrt((x * x).mean(-1, keepdims=True)) + 1e-12
    span = np.where(high > low, high - low, 1)
    best, scale, minimum = np.full(low.shape, np.inf), np.zeros_like(low), np.zeros_like(low)
    for t in TRIES:
        q = np.clip(np.rint((x - low) * ((top + t) / span)), 0, top)
        sw, sq, sqq, sx, sqx = (np.sum(w * v, -1, keepdims=True) for v in (np.ones_like(x), q, q * q, x, q * x))
        det = sw * sqq - sq * sq
        ok = det > 1e-12 * sw * sqq
        a = np.where(ok, (sw * sqx - sq * sx) / np.where(ok, det, 1), span / top)
        b = np.where(ok, (sqq * sx - sq * sqx) / np.where(ok, det, 1), low)
        a = np.where(b > 0, sqx / np.maximum(sqq, 1e-12), a)                     # the minimum can't be negative
        b = np.minimum(b, 0)
        err = np.sum(w * (a * q + b - x) ** 2, -1, keepdims=True)
        better = (err < best) & (a > 0)
        best, scale, minimum = np.where(better, err, best), np.where(better, a, scale), np.where(better, -b, minimum)
    return scale[..., 0], minimum[..., 0]


def f16(x):
    return x.astype(np.float16)


def safe(d):
    return np.where(d != 0, d, 1)


def pack_k45(x, bits):
    """[blocks, 256] f32 -> [blocks, 144 or 176] bytes of Q4_K or Q5_K."""
    n, top = len(x), 2 ** bits - 1
    x = x.reshape(n, 8, 32)
    scale, minimum = affine(x, top)
    d, dmin = f16(scale.max(-1) / 63), f16(minimum.max(-1) / 63)
    df, mf = d.astype(np.float32)[:, None], dmin.astype(np.float32)[:, None]
    sc = np.clip(np.rint(scale / safe(df)), 0, 63).astype(np.uint8)
    m = np.clip(np.rint(minimum / safe(mf)), 0, 63).astype(np.uint8)
    a, b = (df * sc)[..., None], (mf * m)[..., None]
    q = np.clip(np.rint((x + b) / safe(a)), 0, top).astype(np.uint8)
    head = np.empty((n, 12), np.uint8)                      # the first four 6-bit pairs plain, the others split 4 + 2
    head[:, 0:4] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
    head[:, 4:8] = m[:, :4] | (m[:, 4:] >> 4) << 6
    head[:, 8:12] = (sc[:, 4:] & 15) | (m[:, 4:] & 15) << 4
    low = q.reshape(n, 4, 2, 32) & 15
    parts = [d.view(np.uint8).reshape(n, 2), dmin.view(np.uint8).reshape(n, 2), head]
    if bits == 5:
        parts.append(np.bitwise_or.reduce((q >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=1))
    parts.append((low[:, :, 0] | low[:, :, 1] << 4).reshape(n, 128))
    return np.concatenate(parts, 1)


def pack_q6_k(x):
    """[blocks, 256] f32 -> [blocks, 210] bytes of Q6_K."""
    n = len(x)
    x = x.reshape(n, 16, 16)
    big = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)             # the largest value, with its sign
    best, scale = np.full(big.shape, -1.0), np.zeros_like(big)
    w = x * x
    for t in TRIES:
        q = np.clip(np.rint(x * (-(32 + t) / safe(big))), -32, 31)
        sqq, sqx = np.sum(w * q * q, -1, keepdims=True), np.sum(w * q * x, -1, keepdims=True)
        gain = sqx * sqx / np.maximum(sqq, 1e-30)
        better = gain > best
        best, scale = np.where(better, gain, best), np.where(better, sqx / np.maximum(sqq, 1e-30), scale)
    scale = scale[..., 0]
    top = np.take_along_axis(scale, np.abs(scale).argmax(-1)[:, None], -1)
    d = f16(top / -128)
    df = d.astype(np.float32)
    sc = np.clip(np.rint(scale / safe(df)), -128, 127).astype(np.int8)
    a = (df * sc)[..., None]
    q = (np.clip(np.rint(x / safe(a)), -32, 31) + 32).astype(np.uint8).reshape(n, 2, 4, 32)
    low, high = q & 15, q >> 4
    ql = np.concatenate((low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4), -1).reshape(n, 128)
    qh = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(n, 64)
    return np.concatenate((ql, qh, sc.view(np.uint8), d.view(np.uint8).reshape(n, 2)), 1)


PACK = {Q.Q4_K: lambda x: pack_k45(x, 4), Q.Q5_K: lambda x: pack_k45(x, 5), Q.Q6_K: pack_q6_k}


def quantize(x, qtype):
    """The bytes of f32 matrix x as qtype, in the shape that gguf.GGUFWriter takes."""
    if qtype not in PACK:
        return gguf.quantize(x, qtype)
    return PACK[qtype](x.astype(np.float32).reshape(-1, 256)).reshape(x.shape[0], -1)


def main():
    x = np.random.default_rng(1).normal(0, 0.06, (64, 1024)).astype(np.float32)
    x[3], x[4], x[5, :256], x[6, 32:64] = 0, np.abs(x[4]), 0.25, -0.5
    for qtype in (Q.Q4_0, Q.Q4_1, Q.Q4_K, Q.Q5_0, Q.Q5_1, Q.Q5_K, Q.Q6_K, Q.Q8_0):
        y = gguf.dequantize(quantize(x, qtype), qtype)
        err = np.sqrt(((x - y) ** 2).mean() / (x ** 2).mean())
        print(f"{qtype.name}: relative rms error {err:.4f}, at zero {np.abs(y[3]).max()}, at a constant {np.abs(y[5, :256] - 0.25).max():.5f}")
        assert err < {"4": 0.1, "5": 0.05, "6": 0.03, "8": 0.01}[qtype.name[1]] and np.abs(y[3]).max() == 0


if __name__ == "__main__":
    main()
