"""The smoke model: a small Llama in plain PyTorch, with GGUF's tensor names.

Rotary pairs are interleaved (2i, 2i+1), which is what GGUF's "llama" architecture stores, so q and k need no permutation on export.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 448
    layers: int = 6
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 256
    context: int = 1024
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.hidden // self.heads


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def linear(n_in, n_out, std):
    m = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(m.weight, std=std)
    return m


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, kv, std, out = c, c.kv_heads * c.head_dim, c.hidden ** -0.5, 0.0      # each block begins as the identity
        self.attn_norm, self.ffn_norm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.attn_q, self.attn_k, self.attn_v = linear(c.hidden, c.hidden, std), linear(c.hidden, kv, std), linear(c.hidden, kv, std)
        self.attn_output = linear(c.hidden, c.hidden, out)
        self.ffn_gate, self.ffn_up, self.ffn_down = linear(c.hidden, c.ffn, std), linear(c.hidden, c.ffn, std), linear(c.ffn, c.hidden, out)

    def forward(self, x, cos, sin, cache, mm):
        c, (b, t, _) = self.c, x.shape
        h = self.attn_norm(x)
        q = rotate(mm(self.attn_q, h).view(b, t, c.heads, c.head_dim), cos, sin).transpose(1, 2)
        k = rotate(mm(self.attn_k, h).view(b, t, c.kv_heads, c.head_dim), cos, sin).transpose(1, 2)
        v = mm(self.attn_v, h).view(b, t, c.kv_heads, c.head_dim).transpose(1, 2)
        if cache is not None:
            k, v = cache.append(self, k, v)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        x = x + mm(self.attn_output, a.transpose(1, 2).reshape(b, t, -1))
        h = self.ffn_norm(x)
        return x + mm(self.ffn_down, F.silu(mm(self.ffn_gate, h)) * mm(self.ffn_up, h))


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab, c.hidden)
        nn.init.normal_(self.token_embd.weight, std=0.5)
        self.blk = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.output_norm, self.output = Norm(c.hidden, c.eps), linear(c.hidden, c.vocab, c.hidden ** -0.5)
        freq = c.rope_base ** -(torch.arange(0, c.head_dim, 2).double() / c.head_dim)
        angle = torch.arange(c.context).double()[:, None] * freq
        self.register_buffer("cos", angle.cos().float()[:, None], persistent=False)     # [position, 1, pair]
        self.register_buffer("sin", angle.sin().float()[:, None], persistent=False)

    def forward(self, ids, start=0, cache=None, mm=lambda layer, x: layer(x), last_only=False):
        """ids [batch, time] at positions start, start+1, …; the logits.  mm(layer, x) computes each matrix product."""
        cos, sin = self.cos[start:start + ids.shape[1]], self.sin[start:start + ids.shape[1]]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin, cache, mm)
        x = self.output_norm(x[:, -1:] if last_only else x)
        return mm(self.output, x)


class Cache:
    """Keys and values of one run, stored as `dtype` (f16 as Starling has it, or f32)."""

    def __init__(self, dtype=torch.float16):
        self.dtype, self.kv = dtype, {}

    def append(self, block, k, v):
        k, v = k.to(self.dtype).float(), v.to(self.dtype).float()
        if block in self.kv:
            k, v = torch.cat((self.kv[block][0], k), 2), torch.cat((self.kv[block][1], v), 2)
        self.kv[block] = k, v
        return k, v
