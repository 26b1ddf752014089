"""The Transformer of Vaswani et al. (2017): an encoder, a decoder that looks at what the encoder made, and the layers of both.

    encoder layer   x + attention(x), then x + mlp(x)                               each followed by a norm,
    decoder layer   x + attention(x), then x + attention(x, memory), then x + mlp(x)      or the norm first, inside the branch

Shapes are (length, N, E), or (N, length, E) with batch_first, or (length, E) for one sample.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flambeau import errors, settings
from flambeau.eager import autocast
from flambeau.modes import is_grad_enabled
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.activation import GELU, ReLU
from flambeau.nn.modules.container import ModuleList
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.multihead import MultiheadAttention
from flambeau.nn.modules.normalization import LayerNorm
from flambeau.ops.multihead import canonical_mask
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import full

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]
Activation = str | Callable[[Tensor], Tensor]


class _Layer(Module):
    """What both kinds of layers have: attention to themselves and an mlp, with norms and dropouts around them."""

    __constants__ = ["norm_first"]
    linear1: Linear
    linear2: Linear
    dropout: Dropout
    self_attn: MultiheadAttention
    activation: Callable[[Tensor], Tensor]
    norm_first: bool
    branches = 2

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype}
        for name in ("self_attn", "multihead_attn")[: self.branches - 1]:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **place))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        for i in range(1, self.branches + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place))
        for i in range(1, self.branches + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def _add(self, i: int, x: Tensor, branch: Callable, *args: Any) -> Tensor:
        """x and branch i of it, with its norm where it belongs."""
        norm = getattr(self, f"norm{i}")
        return x + branch(norm(x), *args) if self.norm_first else norm(x + branch(x, *args))

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )[0]  # fmt: skip
        return self.dropout1(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return getattr(self, f"dropout{self.branches}")(x)


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then a two-layer perceptron at every place.

    Shape: src (S, N, E) -> (S, N, E); src_mask (S, S), src_key_padding_mask (N, S)
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        padding, mask = _canonical(src, src_key_padding_mask, src_mask, "src_key_padding_mask", "src_mask")
        x = self._add(1, src, self._sa_block, mask, padding, is_causal)
        return self._add(2, x, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to the encoder's memory, then a two-layer perceptron at every place.

    Shape: tgt (T, N, E), memory (S, N, E) -> (T, N, E); tgt_mask (T, T), memory_mask (T, S), tgt_key_padding_mask (N, T), ...
    """

    multihead_attn: MultiheadAttention
    branches = 3

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = self._add(1, tgt, self._sa_block, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._add(2, x, self._mha_block, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self._add(3, x, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        x = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]  # fmt: skip
        return self.dropout2(x)


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end if one is given."""

    __constants__ = ["norm"]

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm, self.enable_nested_tensor, self.mask_check = num_layers, norm, enable_nested_tensor, mask_check
        self.use_nested_tensor = enable_nested_tensor
        reason = _why_padding_stays(encoder_layer) if enable_nested_tensor else None
        if reason is not None:
            errors.warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because encoder_layer{reason}")
            self.use_nested_tensor = False

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
    ) -> Tensor:
        padding, mask = _canonical(src, src_key_padding_mask, mask, "src_key_padding_mask", "mask")
        is_causal = _detect_is_causal_mask(mask, is_causal, _get_seq_len(src, self._batch_first()))
        out = src
        for layer in self.layers:
            out = layer(out, src_mask=mask, is_causal=is_causal, src_key_padding_mask=padding)
        if padding is not None and self._leaves_padding_out(src, mask, padding):
            out = out.masked_fill((padding != 0).unsqueeze(-1), 0.0)
        return out if self.norm is None else self.norm(out)

    def _leaves_padding_out(self, src: Tensor, mask: Tensor | None, padding: Tensor) -> bool:
        """Whether PyTorch would compute nothing for the padding (N, S), in nested tensors, and return zeros there.

        It does so in evaluation mode, where no gradient is wanted and all padding comes at the end. Here padding is computed along.
        """
        layer, casting = self.layers[0], autocast.active()
        if not (settings.encoder_fastpath and self.use_nested_tensor) or layer.training or src.dim() != 3 or mask is not None:
            return False
        if casting is not None and casting.enabled.get("cuda"):
            return False
        if is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in layer.parameters())):
            return False
        kept = padding.logical_not()
        return not self.mask_check or bool((kept[:, :-1] | ~kept[:, 1:]).all())

    def _batch_first(self) -> bool:
        return getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end if one is given."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        length = _get_seq_len(tgt, getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False))
        tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, length)
        out = tgt
        for layer in self.layers:
            out = layer(
                out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder for the source and a decoder for the target, both with a norm at the end.

    Shape: src (S, N, E), tgt (T, N, E) -> (T, N, E)
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Activation = F.relu, custom_encoder: Any = None, custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*options, **place), num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*options, **place), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        samples = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(samples) != tgt.size(samples):
            raise RuntimeError(f"the batch number of src is not that of tgt, found {tuple(src.shape)} and {tuple(tgt.shape)}")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt is not d_model = {self.d_model}, found {tuple(src.shape)} and {tuple(tgt.shape)}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): 0 where place i may look at place j <= i, -inf elsewhere."""
        return _generate_square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)


def _get_clones(module: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


def _why_padding_stays(layer: Any) -> str | None:
    """What about a layer keeps PyTorch from leaving padding out, if anything does."""
    if not isinstance(layer, TransformerEncoderLayer):
        return " was not TransformerEncoderLayer"
    attention, activation = layer.self_attn, layer.activation
    reasons = {
        ".norm_first was True": layer.norm_first,
        ".self_attn.batch_first was not True (use batch_first for better inference performance)": not attention.batch_first,
        ".self_attn._qkv_same_embed_dim was not True": not attention._qkv_same_embed_dim,
        ".self_attn was passed bias=False": attention.in_proj_bias is None,
        ".activation_relu_or_gelu was not True": activation not in (F.relu, F.gelu) and not isinstance(activation, (ReLU, GELU)),
        ".norm1.eps was not equal to encoder_layer.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        ".self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation in ("relu", "gelu"):
        return getattr(F, activation)
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def _canonical(src: Tensor, padding: Tensor | None, mask: Tensor | None, padding_name: str, mask_name: str):
    """Both masks as numbers to add."""
    other = None if mask is None else mask.dtype
    return (
        canonical_mask(padding, padding_name, other, mask_name, src.dtype),
        canonical_mask(mask, mask_name, None, "", src.dtype, check_other=False),
    )


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    return full((sz, sz), float("-inf"), dtype=dtype, device=device).triu(1)


def _get_seq_len(src: Tensor, batch_first: bool) -> int:
    return src.shape[1 if src.dim() == 3 and batch_first else 0]


def _detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Whether a mask is the causal one: as the caller says or, if it says nothing, by looking."""
    if is_causal is not None or mask is None:
        return is_causal is True
    causal = _generate_square_subsequent_mask(mask.size(-2) if size is None else size, mask.device, mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())
