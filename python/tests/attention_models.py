"""Small attentions as models have them."""

from types import SimpleNamespace

from torch import nn

from canzona._heads import find_heads


def linear(rows, cols=8, bias=False):
    return nn.Linear(cols, rows, bias=bias)


class Attention(nn.Module):
    """Four query heads of three rows, two heads of keys and values."""

    def __init__(self, **numbers):
        super().__init__()
        self.q_proj = linear(12, bias=True)
        self.k_proj = linear(6)
        self.v_proj = linear(6)
        self.o_proj = linear(8, 12)
        for name, n in (numbers or dict(num_heads=4, n_kv_heads=2)).items():
            setattr(self, name, n)


class Latent(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_b_proj = linear(3 * (4 + 2))
        self.kv_a_proj = linear(7)
        self.kv_b_proj = linear(3 * (4 + 5))


class Net(nn.Module):
    def __init__(self, attention=None, config=None):
        super().__init__()
        self.attn = attention or Attention()
        if config is not None:
            self.config = SimpleNamespace(**config)


def blocks(model):
    """Of weights, whose biases have the same."""
    found = find_heads(model)
    for name in found:
        weight = name.removesuffix("bias") + "weight"
        assert name.endswith("weight") or found[name] == found[weight]
    return {n: h.blocks for n, h in found.items() if n.endswith("weight")}
