"""Convolution: every output is a weighted sum of the patch of input that a small kernel covers.

    conv1d conv2d conv3d                              slide the kernel over the input
    conv_transpose1d conv_transpose2d ...3d           their adjoints: every input spreads the kernel over the output

Two array operations carry all of them: `_convolution` and `_convolution_weight`. Both are linear in both tensors, so the derivatives of each
are the two again, and derivatives of any order follow. Shapes: input (N, C, *S), weight (O, C / groups, *K) -> (N, O, *P); a transposed
convolution goes from (N, O, *P) with the same weight to (N, C, *S). Without N the input is one sample.

>>> tuple(torch.conv2d(torch.ones(2, 3, 8, 8), torch.ones(5, 3, 3, 3), padding=1).shape)
(2, 5, 8, 8)
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.templates import convolution as kernels
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.padding import constant_pad_nd
from flambeau.ops.views import whole


@on_arrays(name="_convolution_of", public=False, method=False, grad_name="ConvolutionBackward0")
def _convolution_of(input, weight, bias, sizes, stride, padding, dilation, transposed, groups):
    """The convolution of a batch, or its adjoint, plus a number for every channel. `sizes` are those of the result: what the rest of the
    arguments says about them is only nearly unique."""
    run = kernels.adjoint if transposed else kernels.convolve
    return run(input, weight, bias, sizes, stride, padding, dilation, groups)


@_convolution_of.meta
def _(input, weight, bias, sizes, stride, padding, dilation, transposed, groups):
    shape = (input.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *sizes)
    return shape, input.dtype, kernels.strides_of(shape, *arrays.view_of(input), *arrays.view_of(weight))


@_convolution_of.joint
def _(grad, input, weight, stride, padding, dilation, transposed, groups, needs):
    found, rest = {}, (stride, padding, dilation)
    if needs["input"]:
        found["input"] = _convolution_of(grad, _conj(weight), None, tuple(input.shape[2:]), *rest, not transposed, groups)
    if needs["weight"]:
        x, y = (grad, _conj(input)) if transposed else (_conj(input), grad)
        found["weight"] = _convolution_weight(x, y, tuple(weight.shape[2:]), *rest, groups)
    if needs.get("bias"):
        found["bias"] = grad.sum((0, *range(2, grad.dim())))
    return found


_convolution_of.second_derivative = "nothing"  # where the weight wants no gradient


@on_arrays(name="_convolution_weight", public=False, method=False, grad_name="ConvolutionBackwardBackward0")
def _convolution_weight(x, y, kernel, stride, padding, dilation, groups):
    """The derivative of a convolution from x (N, C, *S) to y (N, O, *P) by its weight (O, C / groups, *kernel)."""
    return kernels.weight_gradient(x, y, kernel, stride, padding, dilation, groups)


@_convolution_weight.meta
def _(x, y, kernel, stride, padding, dilation, groups):
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    return shape, x.dtype, kernels.strides_of(shape, *arrays.view_of(x), *arrays.view_of(y))


@_convolution_weight.joint
def _(grad, x, y, stride, padding, dilation, groups, needs):
    found, rest = {}, (stride, padding, dilation)
    if needs["y"]:
        found["y"] = _convolution_of(_conj(x), grad, None, tuple(y.shape[2:]), *rest, False, groups)
    if needs["x"]:
        found["x"] = _convolution_of(_conj(y), grad, None, tuple(x.shape[2:]), *rest, True, groups)
    return found


def _conj(x):
    return x.conj().resolve_conj() if x.is_complex() else x


# -- the public functions --------------------------------------------------------------------------------------------------


def _conv(name: str, n: int, input, weight, bias, stride, padding, dilation, groups):
    batched = _batched(name, n, input)
    if isinstance(padding, str):
        return _conv_named(name, n, batched, weight, bias, stride, padding, dilation, groups, input.dim() == n + 1)
    out = _checked(name, batched, weight, bias, stride, padding, dilation, False, 0, groups)
    return out if input.dim() == n + 2 else out.squeeze(0)


def _conv_named(name: str, n: int, input, weight, bias, stride, padding: str, dilation, groups, single: bool):
    """padding="valid" is none; "same" gives the output the size of the input, an odd zero going to the end."""
    if padding not in ("valid", "same"):
        raise RuntimeError(f"Invalid padding string: {padding!r}; it may be 'valid' (none), 'same', or numbers")
    pad: tuple[int, ...] = (0,) * n
    if padding == "same":
        if weight.dim() != n + 2:
            raise RuntimeError(f"Expected {weight.dim()}-dimensional input for {weight.dim()}-dimensional weight {list(weight.shape)}")
        if any(s != 1 for s in _numbers("stride", stride, n)):
            raise RuntimeError("padding='same' is not supported for strided convolutions: the output would be smaller. Try numbers")
        total = [d * (k - 1) for d, k in zip(_numbers("dilation", dilation, n), weight.shape[2:], strict=True)]
        pad = tuple(max(t, 0) // 2 for t in total)
        if any(t % 2 for t in total):
            input = constant_pad_nd(input, [m for t in reversed(total) for m in (0, t % 2)])
    out = _checked(name, input, weight, bias, stride, pad, dilation, False, 0, groups)
    return out.squeeze(0) if single else out


def _conv_transposed(name: str, n: int, input, weight, bias, stride, padding, output_padding, groups, dilation):
    out = _checked(name, _batched(name, n, input), weight, bias, stride, padding, dilation, True, output_padding, groups)
    return out if input.dim() == n + 2 else out.squeeze(0)


def _batched(name: str, n: int, input):
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}"
        )
    return input if input.dim() == n + 2 else input.unsqueeze(0)


def _numbers(name: str, value, n: int) -> tuple[int, ...]:
    """One number for each dimension."""
    given = (value,) if not isinstance(value, (tuple, list)) else value
    numbers = tuple([v if type(v) is int else whole(v) for v in given])
    if len(numbers) == n:
        return numbers
    if len(numbers) != 1:
        raise RuntimeError(f"{name}: expected one integer, or a list of {n} values, one for each dimension, found {list(numbers)}")
    return numbers * n


def _checked(name: str, input, weight, bias, stride, padding, dilation, transposed: bool, output_padding, groups: int):
    """The convolution of a batch, once the arguments make sense together."""
    n = weight.dim() - 2
    if n < 1:
        raise RuntimeError(f"weight should have at least three dimensions (channels out, channels in, kernel), found {list(weight.shape)}")
    stride, padding, dilation = _numbers("stride", stride, n), _numbers("padding", padding, n), _numbers("dilation", dilation, n)
    more = _numbers("output_padding", output_padding, n)
    _check_options(stride, padding, dilation, more, groups, transposed and input.numel() > 0)
    before, kernel = tuple(input.shape[2:]), tuple(weight.shape[2:])
    if transposed:
        sizes = kernels.adjoint_sizes(before, kernel, stride, padding, dilation, more)
    else:
        sizes = kernels.out_sizes(before, kernel, stride, padding, dilation)
    _check_shapes(input, weight, bias, sizes, padding, dilation, transposed, groups)
    _check_dtypes(name, input, weight, bias, transposed)
    if not input.shape[1] and not transposed:
        return _of_no_channels(input, weight, bias, sizes)
    return _convolution_of(input, weight, bias, sizes, stride, padding, dilation, transposed, groups)


def _of_no_channels(input, weight, bias, sizes):
    """PyTorch makes no channels of none, not zeros or the bias. What was learned is part of the history, and its gradient is zero."""
    total = sum([t.sum() for t in (input, weight, bias) if t is not None])
    return input.new_zeros((input.shape[0], 0, *sizes)) + total


PADDING = (1 << 62) - 1  # twice as much can be counted


def _check_options(stride, padding, dilation, output_padding, groups, transposed: bool) -> None:
    if groups <= 0:
        raise RuntimeError(f"non-positive groups is not supported: found groups={groups}")
    if min(padding) < 0:
        raise RuntimeError(f"negative padding is not supported: found padding={padding}")
    for d, p in enumerate(padding):
        if p > PADDING:
            raise RuntimeError(f"Given padding={p} at dimension {d} , expected padding to be at most {PADDING}")
    if min(output_padding) < 0:
        raise RuntimeError(f"negative output_padding is not supported: found output_padding={output_padding}")
    if min(stride) <= 0:
        raise RuntimeError(f"non-positive stride is not supported: found stride={stride}")
    if min(dilation) <= 0:
        raise RuntimeError(f"non-positive dilation is not supported, dilation should be greater than zero: found dilation={dilation}")
    if transposed and any(m >= s and m >= d for m, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise RuntimeError(
            f"output padding must be smaller than either stride or dilation: output_padding={output_padding}, stride={stride}, "
            f"dilation={dilation}"
        )


def _check_shapes(input, weight, bias, made, padding, dilation, transposed: bool, groups: int) -> None:
    of_weight, of_input = list(weight.shape), list(input.shape)
    if weight.dim() != input.dim():
        raise RuntimeError(
            f"Expected {weight.dim()}-dimensional input for {weight.dim()}-dimensional weight {of_weight}, but got "
            f"{input.dim()}-dimensional input of size {of_input} instead"
        )
    if of_weight[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, found {of_weight}")
    if of_weight[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} in dimension 0, found {of_weight}")
    expected = of_weight[0] if transposed else of_weight[1] * groups
    if of_input[1] != expected:
        given = "transposed=1" if transposed else f"groups={groups}"
        advice = ""
        if of_input[-1] == expected and input.dim() > 3:
            advice = f". The last dimension is {expected}: the input looks NHWC, convolutions take NCHW. Try input.permute(0, {input.dim() - 1}, ...)"
        raise RuntimeError(
            f"Given {given}, weight of size {of_weight}, expected input{of_input} to have {expected} channels, "
            f"but got {of_input[1]} channels instead{advice}"
        )
    channels = of_weight[1] * groups if transposed else of_weight[0]
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != channels):
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else ''}weight of size {of_weight}, expected bias to be 1-dimensional with {channels} "
            f"elements, but got bias of size {list(bias.shape)} instead"
        )
    kernel, sizes = of_weight[2:], of_input[2:]
    if transposed:
        if min(made) < 0:  # nothing is an answer: PyTorch gives it to batches
            raise RuntimeError(f"Output size is too small: {made} per channel would be left of {tuple(sizes)}")
        return
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padded = [s + 2 * p for s, p in zip(sizes, padding, strict=True)]
    if any(p < s for p, s in zip(padded, spans, strict=True)) or 0 in kernel:
        across = " x ".join
        raise RuntimeError(
            f"Calculated padded input size per channel: ({across(map(str, padded))}). Kernel size: ({across(map(str, spans))}). "
            "Kernel size can't be greater than actual input size. Try padding, or a smaller dilation"
        )
    if 0 in sizes and 0 not in of_input[:2]:
        raise RuntimeError(f"Only zero batch or zero channel inputs may be empty, found shape {of_input}")


def _check_dtypes(name: str, input, weight, bias, transposed: bool) -> None:
    if input.dtype is not weight.dtype:
        found = dtypes.in_messages(input.dtype), dtypes.in_messages(weight.dtype)
        raise RuntimeError(f"Input type and weight type should be the same, found {found[0]} and {found[1]}: {name} converts neither")
    if bias is not None and bias.dtype is not input.dtype:
        found = dtypes.in_messages(input.dtype), dtypes.in_messages(bias.dtype)
        raise RuntimeError(f"Input type ({found[0]}) and bias type ({found[1]}) should be the same: {name} converts neither")
    if input.dtype.name == "bool" or (transposed and input.dtype.name in ("int32", "int16", "int8", "uint8")):
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}: it adds up products. Try x.float()')


def _declare(n: int) -> None:
    """Declare the convolution in n dimensions, and the transposed one."""
    name, transposed = f"conv{n}d", f"conv_transpose{n}d"
    doc = "(N, C, *S) or (C, *S), weight (O, C / groups, *K) -> (N, O, *P), P = (S + 2 padding - dilation (K - 1) - 1) / stride + 1."

    @composite(name=name, method=False, aliases=(f"nn.functional.{name}",), autocast="half", doc=doc)
    def slide(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return _conv(name, n, input, weight, bias, stride, padding, dilation, groups)

    doc = "(N, C, *P), weight (C, O / groups, *K) -> (N, O, *S), S = (P - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1."

    @composite(name=transposed, method=False, aliases=(f"nn.functional.{transposed}",), autocast="half", doc=doc)
    def spread(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return _conv_transposed(transposed, n, input, weight, bias, stride, padding, output_padding, groups, dilation)


for _n in (1, 2, 3):
    _declare(_n)


@composite(method=False, autocast="half")
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """The convolution of a batch in as many dimensions as the weight has, or its adjoint if `transposed`."""
    return _checked("convolution", input, weight, bias, stride, padding, dilation, bool(transposed), output_padding, groups)


@composite(method=False, aliases=("nn.functional.conv_tbc",), autocast="half")
def conv_tbc(input, weight, bias, pad=0):
    """Along the first dimension: input (T, N, C), weight (K, C, O), bias (O,) -> (T + 2 pad - K + 1, N, O)."""
    if input.dim() != 3 or weight.dim() != 3:
        raise RuntimeError(f"conv_tbc takes input (T, N, C) and weight (K, C, O), found {list(input.shape)} and {list(weight.shape)}")
    if bias.dim() != 1:
        raise RuntimeError(f"conv_tbc takes a bias of one dimension, found {list(bias.shape)}")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError(f"conv_tbc: input has {input.shape[2]} channels (dim 2), but weight takes {weight.shape[1]} (dim 1)")
    if bias.shape[0] != weight.shape[2]:
        raise RuntimeError(f"conv_tbc: bias has {bias.shape[0]} entries, but weight gives {weight.shape[2]} channels (dim 2)")
    return OPS["conv1d"](input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1).contiguous()
