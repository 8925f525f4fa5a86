"""The network: a small LLaDA (bidirectional transformer) in plain PyTorch.

Parameter names are the GGUF tensor names, so export is a loop and loading a GGUF is its inverse.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 1536
    width: int = 256
    layers: int = 4
    heads: int = 4
    ffn: int = 512
    context: int = 1024
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    block: int = 8  # positions per block that the reference sampler should use

    @property
    def head_dim(self):
        return self.width // self.heads

    def as_dict(self):
        return asdict(self)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rotate_halves(x, cos, sin):
    """RoPE in the half-split layout: dimension i is paired with i + K/2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, ffn = config.width, config.ffn
        self.heads, self.head_dim = config.heads, config.head_dim
        self.attn_norm = RMSNorm(width, config.norm_eps)
        self.attn_q = nn.Linear(width, width, bias=False)
        self.attn_k = nn.Linear(width, width, bias=False)
        self.attn_v = nn.Linear(width, width, bias=False)
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_norm = RMSNorm(width, config.norm_eps)
        self.ffn_gate = nn.Linear(width, ffn, bias=False)
        self.ffn_up = nn.Linear(width, ffn, bias=False)
        self.ffn_down = nn.Linear(ffn, width, bias=False)

    def split_heads(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, cos, sin, rows=None):
        """x [N, L, D]; with `rows`, indices into N * L, only those come back: [R, D]."""
        y = self.attn_norm(x)
        q = rotate_halves(self.split_heads(self.attn_q(y)), cos, sin)
        k = rotate_halves(self.split_heads(self.attn_k(y)), cos, sin)
        v = self.split_heads(self.attn_v(y))
        y = F.scaled_dot_product_attention(q, k, v)  # no mask: every position sees every other
        y = y.transpose(1, 2).flatten(-2)
        if rows is not None:
            x, y = x.flatten(0, 1)[rows], y.flatten(0, 1)[rows]
        x = x + self.attn_output(y)
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class LLaDA(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocab, config.width)
        self.blk = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.output_norm = RMSNorm(config.width, config.norm_eps)
        self.output = nn.Linear(config.width, config.vocab, bias=False)
        rates = config.rope_base ** (-torch.arange(0, config.head_dim, 2).float() / config.head_dim)
        angles = torch.outer(torch.arange(config.context).float(), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def initialise(self):
        residual_scale = 1 / math.sqrt(2 * self.config.layers)
        for name, weight in self.named_parameters():
            if weight.ndim < 2:
                continue
            std = 1 / math.sqrt(weight.shape[1])
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                std *= residual_scale
            nn.init.normal_(weight, std=std)
        nn.init.normal_(self.token_embd.weight, std=1.0)
        nn.init.normal_(self.output.weight, std=0.02)

    def hidden(self, tokens, rows=None):
        """tokens [N, L] -> normalised hidden states [N, L, D], or [R, D] for `rows`, indices into N * L."""
        length = tokens.shape[1]
        x = self.token_embd(tokens)
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.blk[:-1]:
            x = layer(x, cos, sin)
        x = self.blk[-1](x, cos, sin, rows)
        return self.output_norm(x)

    def forward(self, tokens):
        """tokens [N, L] -> logits [N, L, V]."""
        return self.output(self.hidden(tokens))
