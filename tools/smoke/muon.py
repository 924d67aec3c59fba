"""Muon: momentum whose step is made orthogonal, for matrices (K. Jordan and others, 2024), in f32 and by stacks of equal shape."""
import torch


def orthogonal(g, steps):
    """The nearest semi-orthogonal matrix of each of the stacked g, roughly, by Newton-Schulz iteration (quintic)."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.mT if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, steps=4):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, params in shapes.items():
                for p in params:
                    self.state[p].setdefault("m", torch.zeros_like(p)).lerp_(p.grad, 1 - group["momentum"])
                g = torch.stack([p.grad.lerp(self.state[p]["m"], group["momentum"]) for p in params])
                update = orthogonal(g, group["steps"]) * max(1, shape[0] / shape[1]) ** 0.5
                for p, u in zip(params, update):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"])
