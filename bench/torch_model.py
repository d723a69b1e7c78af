"""The decoder in plain PyTorch, one operation after the other: the model that
ours is compared with, in its numbers and in its speed.

    config = {"layers": 2, "hidden": 64, "ffn": 128, "vocab": 100, "heads": 4,
              "kv_heads": 2, "head_dim": 16, "tied": True, ...}
    loss, balance = decoder_loss(config, weights, sequences)

Conventions of Qwen3: RMSNorm with epsilon under the root, query and key norm of
each head before the rotation, halves of a head rotated against each other,
routing weights divided by their sum. Tensors are fused like ours: q, k, v in
one, interleaved by groups of query heads; gate, then up, in one.
"""
import math

import torch
import torch.nn.functional as F


def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def rotation(config, length, dtype):
    """Cosines and sines of every position, length x head_dim."""
    half = torch.arange(config["head_dim"] // 2, dtype=torch.float64)
    speeds = config["rope_base"] ** (-2 * half / config["head_dim"])
    angles = torch.outer(torch.arange(length, dtype=torch.float64), speeds)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


def plain_attention(q, k, v):
    """Causal, over batch x heads x length x head_dim."""
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention(config, weights, name, x, turn, attend):
    batch, length, _ = x.shape
    groups, dim = config["kv_heads"], config["head_dim"]
    per_group = config["heads"] // groups
    qkv = F.linear(x, weights[name + "qkv_proj.weight"])
    qkv = qkv.view(batch, length, groups, per_group + 2, dim)
    q, k, v = qkv.split([per_group, 1, 1], dim=3)
    if name + "q_norm.weight" in weights:
        epsilon = config["norm_epsilon"]
        q = rms_norm(q, weights[name + "q_norm.weight"], epsilon)
        k = rms_norm(k, weights[name + "k_norm.weight"], epsilon)
    heads = [t.reshape(batch, length, -1, dim).transpose(1, 2)
             for t in (q, k.expand_as(q), v.expand_as(q))]
    q, k = (rotate(t, *turn) for t in heads[:2])
    out = attend(q, k, heads[2]).transpose(1, 2).reshape(batch, length, -1)
    return F.linear(out, weights[name + "o_proj.weight"])


def mlp(weights, name, x):
    gate, up = F.linear(x, weights[name + "gate_up_proj.weight"]).chunk(2, -1)
    return F.linear(F.silu(gate) * up, weights[name + "down_proj.weight"])


def balance_loss(config, probabilities, chosen):
    """The mean over sequences of E · Σ_e f_e · P_e, f a constant."""
    experts = config["experts"]
    pairs = F.one_hot(chosen, experts).to(probabilities.dtype)
    shares = pairs.mean(dim=(1, 2))
    return experts * (shares * probabilities.mean(dim=1)).sum(-1).mean()


def experts(config, weights, name, x):
    probabilities = F.linear(x, weights[name + "gate.weight"]).softmax(-1)
    top, chosen = probabilities.topk(config["experts_per_token"], dim=-1)
    top = top / top.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    if config["shared_experts"]:
        out = out + mlp(weights, name + "shared_experts.", x)
    for e in range(config["experts"]):
        weight = (top * (chosen == e)).sum(-1, keepdim=True)
        out = out + weight * mlp(weights, f"{name}experts.{e}.", x)
    return out, balance_loss(config, probabilities, chosen)


def decoder_loss(config, weights, sequences, attend=plain_attention,
                 turn=None):
    """Mean cross entropy over tokens, and the balance loss of all layers.

    sequences: batch x (length + 1) tokens, inputs and shifted targets; turn:
    the rotation, if it is there already.
    """
    inputs, targets = sequences[:, :-1], sequences[:, 1:]
    epsilon = config["norm_epsilon"]
    embedding = weights["model.embed_tokens.weight"]
    turn = turn or rotation(config, inputs.shape[1], embedding.dtype)
    x = F.embedding(inputs, embedding)
    balance = x.new_zeros(())
    for layer in range(config["layers"]):
        name = f"model.layers.{layer}."
        normed = rms_norm(x, weights[name + "input_layernorm.weight"], epsilon)
        x = x + attention(config, weights, name + "self_attn.", normed, turn,
                          attend)
        normed = rms_norm(x, weights[name + "post_attention_layernorm.weight"],
                          epsilon)
        if name + "mlp.gate.weight" in weights:
            out, own = experts(config, weights, name + "mlp.", normed)
            x, balance = x + out, balance + own
        else:
            x = x + mlp(weights, name + "mlp.", normed)
    x = rms_norm(x, weights["model.norm.weight"], epsilon)
    logits = F.linear(x, embedding if config["tied"]
                      else weights["lm_head.weight"])
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return loss, balance * config.get("balance_coefficient", 0)
