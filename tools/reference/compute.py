"""What a model computes: everything of an expected.json (docs/golden.md) but its tokens."""
import math

import torch
import transformers

LOGITS_AT = (0, 1, 2, 17, 31, 32, 63, 64, 127, 128, 199)   # and the prompt's last: ends of blocks, windows, first tokens


class Choices:
    """While active, notes how near torch.topk came to a tie: the gap to the first one left out, over the largest value."""

    def __enter__(self):
        self.gap, self.saved = math.inf, (torch.topk, torch.Tensor.topk)
        method = torch.Tensor.topk

        def topk(x, k, *args, **kwargs):
            if k < x.shape[-1]:
                v = method(x.detach(), k + 1, dim=-1, sorted=True).values
                real = v[..., k] > -1e30          # experts of closed groups are masked
                near = ((v[..., k - 1] - v[..., k]) / v[..., 0].abs().clamp(min=1e-6))[real]
                self.gap = min([self.gap, *near.flatten().tolist()])
            return method(x, k, *args, **kwargs)
        torch.topk = torch.Tensor.topk = topk
        return self

    def __exit__(self, *_):
        torch.topk, torch.Tensor.topk = self.saved


def forward(model, ids):
    """Logits [n, vocabulary] and residual streams [layers+1][n, width] of one pass without a cache: the input of layer 0,
    then the output of each layer."""
    streams = []

    def first(out):
        return out[0] if isinstance(out, tuple) else out
    layers = model.model.layers
    hooks = [layers[0].register_forward_pre_hook(lambda m, args, kw: streams.append(args[0] if args else kw["hidden_states"]), with_kwargs=True)]
    hooks += [layer.register_forward_hook(lambda m, args, out: streams.append(first(out))) for layer in layers]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return logits, [s[0] for s in streams]


def greedy(model, ids, n):
    """n likeliest tokens after ids, one after the other through the model's own cache; the least lead of one over the
    next; and the logits after all of them."""
    cache = transformers.DynamicCache(config=model.config)
    logits = model(torch.tensor([ids]), cache=cache, use_cache=True).logits[0, -1]
    out, lead = [], math.inf
    for _ in range(n):
        top = logits.topk(2)
        lead = min(lead, (top.values[0] - top.values[1]).item())
        out.append(top.indices[0].item())
        logits = model(torch.tensor([out[-1:]]), cache=cache, use_cache=True).logits[0, -1]
    return out, lead, logits


def cache_of(config, layer, head_dim):
    """Elements of a layer's cache (docs/golden.md)."""
    kinds, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    if kinds and kinds[layer] == "linear_attention":
        keys, values = (n * d for n, d in ((config.linear_num_key_heads, config.linear_key_head_dim),
                                           (config.linear_num_value_heads, config.linear_value_head_dim)))
        return {"growing": 0, "ring": 0, "state": (2 * keys + values) * (config.linear_conv_kernel_dim - 1) + values * config.linear_key_head_dim}
    if hasattr(config, "kv_lora_rank"):
        return {"growing": config.kv_lora_rank + config.qk_rope_head_dim, "ring": 0, "state": 0}
    row = 2 * config.num_key_value_heads * head_dim
    windowed = kinds[layer] == "sliding_attention" if kinds else bool(window)
    return {"growing": 0, "ring": row * window, "state": 0} if windowed else {"growing": row, "ring": 0, "state": 0}


def numbers(t):
    """Nested lists with the nine digits that a float32 needs."""
    return [float(f"{x:.9g}") for x in t.tolist()] if t.ndim == 1 else [numbers(row) for row in t]


@torch.no_grad()
def expected(model, prompt, new, head_dim):
    """The numbers of an expected.json, and the margins that say whether rounding could change a choice."""
    tokens, lead, last = greedy(model, prompt, new)
    with Choices() as choices:
        logits, streams = forward(model, prompt + tokens)
    config, n = model.config, len(prompt)
    at = [p for p in LOGITS_AT if p < n - 1] + [n - 1]
    probe = sorted({0, n // 2, n - 1})
    return {
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "transformers_model_type": config.model_type,
        "prompt": prompt, "logits_positions": at, "logits": numbers(logits[at]),
        "greedy": tokens, "greedy_last_logits": numbers(last),
        "hidden_positions": probe, "hidden": [numbers(s[probe]) for s in streams],
        "cache": {"per_layer": [cache_of(config, l, head_dim) for l in range(config.num_hidden_layers)]},
        "margins": {"greedy_top1_lead": lead, "topk_gap_relative": None if math.isinf(choices.gap) else choices.gap,
                    "cached_decode_vs_full_max_abs": (logits[-1] - last).abs().max().item(), "logits_std": logits.std().item()},
    }
