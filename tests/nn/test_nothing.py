"""Layers given nothing: empty batches, no channels, no places, no windows; and indices and options that are none."""

from __future__ import annotations

import pytest
from both import both, refused, warned


def told(torch, call, *shapes):
    """What a function makes of tensors of ones: shapes and sums of its result and of the gradients; or what it is refused with."""

    def run():
        given = [torch.ones(shape, requires_grad=True) for shape in shapes]
        result = call(*given)
        result.sum().backward()
        return [list(result.shape), float(result.detach().nansum()), [(list(t.grad.shape), float(t.grad.sum())) for t in given]]

    try:
        return run()
    except (RuntimeError, ValueError, IndexError, TypeError):
        return refused(run)


@both
def test_convolutions_without_channels(torch):
    """A convolution of no channels, or to none, has another shape or other gradients."""
    functional, seen = torch.nn.functional, []
    for n in (1, 2, 3):
        conv, sizes, kernel = getattr(functional, f"conv{n}d"), (5,) * n, (3,) * n
        seen += [told(torch, conv, (2, c, *sizes), (o, c, *kernel), (o,)) for c, o in ((0, 4), (3, 0), (0, 0))]
        seen += [told(torch, conv, (0, 3, *sizes), (4, 3, *kernel)), told(torch, conv, (2, 3, *(0,) * n), (4, 3, *kernel))]
        seen.append(told(torch, getattr(functional, f"conv_transpose{n}d"), (2, 0, *sizes), (0, 4, *kernel)))
    return seen


@both
def test_pools_of_nothing(torch):
    """A pool of an empty batch, of no channels or of no places, or to no windows, has another shape, or is not refused."""
    functional, seen = torch.nn.functional, []
    for n in (1, 2, 3):
        sizes = (5,) * n
        for shape in ((0, 3, *sizes), (2, 0, *sizes), (2, 3, *(0,) * n), (0, *sizes)):
            average, greatest = (getattr(functional, f"adaptive_{kind}_pool{n}d") for kind in ("avg", "max"))
            seen += [told(torch, lambda x, s=s, pool=pool: pool(x, s), shape) for s in (1, 2) for pool in (average, greatest)]
            unpool = getattr(functional, f"max_unpool{n}d")
            seen.append(told(torch, lambda x, pool=unpool: pool(x, torch.zeros(x.shape, dtype=torch.int64), 2), shape))
            if n > 1:
                drawn = torch.zeros(shape[0] if len(shape) > n + 1 else 1, shape[-n - 1], n)
                pool = getattr(functional, f"fractional_max_pool{n}d")
                for s in (0, 2):
                    seen.append(
                        told(torch, lambda x, s=s, pool=pool, d=drawn, n=n: pool(x, 1, output_size=(s,) * n, _random_samples=d), shape)
                    )
    return [*seen, told(torch, lambda x: functional.fractional_max_pool2d(x, 0, output_size=2), (1, 1, 4, 4))]


@both
def test_points_of_nothing(torch):
    """Sampling an empty batch, no channels or at no points fails, or a point that is no number is read in a volume."""
    functional, seen = torch.nn.functional, []
    for n in (2, 3):
        for mode in ("bilinear", "nearest"):
            for batch, channels, points in ((0, 2, 3), (2, 0, 3), (2, 2, 0)):
                seen.append(
                    told(
                        torch,
                        lambda x, grid, mode=mode: functional.grid_sample(x, grid, mode=mode, align_corners=False),
                        (batch, channels, *(4,) * n),
                        (batch, points, *(2,) * (n - 1), n),
                    )
                )
    for value in ("nan", "inf", "-inf"):
        grid = torch.full((1, 1, 1, 1, 3), float(value))
        seen.append(functional.grid_sample(torch.ones(1, 1, 3, 3, 3), grid, align_corners=False))
    return seen


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_what_is_no_row(mode):
    """An index that is none of the table's is refused with another exception, or a table without columns cannot be read."""

    @both
    def compared(torch):
        def bag(index, **options):
            return lambda w: torch.nn.functional.embedding_bag(torch.tensor(index), w, mode=mode, **options)

        seen = [told(torch, bag(index, padding_idx=0), (4, 3)) for index in ([[0, -1]], [[4, 1]], [[0, 0]], [[1, 3]])]
        seen.append(told(torch, bag([1], offsets=torch.tensor([0])), (3, 0)))
        return seen

    compared()


@both
def test_rows_of_nothing(torch):
    """The gradient of an embedding that read only padding, or rows without columns, cannot be computed."""
    functional = torch.nn.functional
    seen = [told(torch, lambda w: functional.embedding(torch.tensor([1, 1]), w, padding_idx=1), (3, 2))]
    seen.append(told(torch, lambda w: functional.embedding(torch.tensor([1, 1]), w), (3, 0)))
    layer = torch.nn.Embedding(3, 0, sparse=True)
    layer(torch.tensor([[1], [2]])).sum().backward()
    weights = [torch.ones(2, dtype=torch.float64), torch.ones(2), torch.ones(3)]
    for given in weights:
        seen.append(
            refused(
                lambda w=given: functional.embedding_bag(
                    torch.tensor([0, 1]), torch.ones(3, 2), torch.tensor([0]), mode="sum", per_sample_weights=w
                )
            )
        )
    return [*seen, list(layer.weight.grad.shape)]


@both
def test_options_that_are_refused(torch):
    """What PyTorch refuses is accepted, or refused with another exception."""
    functional, x = torch.nn.functional, torch.ones(2, 3)
    layer = torch.nn.Linear(3, 3)
    return [
        refused(lambda: functional.softshrink(x, -1.0)),
        refused(lambda: functional.softshrink(x.half(), 65507.0)),
        functional.softshrink(x.half(), 65504.0),
        refused(lambda: functional.binary_cross_entropy(x.sigmoid(), torch.ones(2, 3, 1))),
        refused(lambda: functional.fold(torch.ones(1, 4, 4), 16, 7318349394477056)),
        refused(lambda: functional.pad(torch.ones(2, 0, 4), (1, 1), mode="reflect")),
        refused(lambda: functional.pad(torch.ones(2, 2, 4, 4), (1, 1), mode="reflect")),
        refused(lambda: functional.grid_sample(torch.ones(1, 2, 2), torch.ones(1, 1, 1, 2), align_corners=False)),
        refused(lambda: x.to(torch.device("cpu"), True)),
        refused(lambda: layer.to(None, True)),
        refused(lambda: layer.to(torch.device("cpu"), torch.tensor(3.0))),
        warned(lambda: torch.nn.utils.clip_grad_norm_((p for p in ()), 1.0)),
    ]


@both
def test_pools_refuse_windows_that_are_none(torch):
    """A window larger than can be counted, or of no size, is accepted (and read beyond the memory), or refused otherwise."""
    functional, x = torch.nn.functional, torch.ones(1, 2, 7, 7)
    drawn = torch.ones(0, 2, 2)
    return [
        refused(lambda: torch.nn.LPPool1d(-1.38119e150, 7879455037536781369, ceil_mode=True)(torch.ones(3, 15))),
        refused(lambda: torch.nn.MaxPool3d(9223372036854775803)(torch.ones(1, 3, 4, 4, 4))),
        refused(lambda: functional.max_pool2d(x, 3, padding=5)),
        refused(lambda: functional.max_pool2d(x, -1)),
        refused(lambda: torch.nn.FractionalMaxPool3d(0, output_size=2)),
        refused(lambda: functional.fractional_max_pool2d(x, (2,), output_size=(3, 3))),
        refused(lambda: functional.fractional_max_pool2d(x, 2, output_size=(3,))),
        refused(lambda: functional.fractional_max_pool2d(x, 2, output_size=(9, 3))),
        refused(lambda: functional.fractional_max_pool2d(x, 2, output_size=3, _random_samples=drawn)),
        refused(lambda: torch.nn.MaxUnpool2d(())(torch.ones(1, 1, 1), torch.zeros(1, 1, 1, dtype=torch.int64))),
        refused(lambda: functional.conv1d(torch.ones(1, 1, 9), torch.ones(1, 1, 3), padding=9223372036854775803)),
    ]


@both
def test_sequences_of_nothing(torch):
    """An empty batch can be packed, or a PackedSequence without steps unpacked."""
    rnn = torch.nn.utils.rnn
    packed = rnn.PackedSequence(torch.ones(0, 5), torch.tensor([], dtype=torch.int64), None, None)
    return [
        refused(lambda: rnn.pack_padded_sequence(torch.ones(0, 0), [])),
        refused(lambda: rnn.pack_padded_sequence(torch.ones(0, 1, 3), torch.ones(2), True)),
        refused(lambda: rnn.pad_packed_sequence(packed)),
        refused(lambda: rnn.unpack_sequence(packed)),
    ]


@both
def test_layers_refuse_what_is_no_size(torch):
    """A size, a flag or a number of another kind is accepted by the constructor or by forward."""
    nn = torch.nn
    x = torch.ones(2, 3)
    return [
        *[refused(lambda kind=kind: kind(2.0, 3)) for kind in (nn.RNN, nn.GRU, nn.LSTM)],
        refused(lambda: nn.LSTM(2, 3, bias=1)),
        refused(lambda: nn.GRU(2, 3, batch_first="yes")),
        refused(lambda: nn.RNN(2, 3, nonlinearity="sigmoid")),
        refused(lambda: nn.RNN(2, 3, 1, "TANH")),
        nn.RNN(2, 3, 1, "relu", False).nonlinearity,
        refused(lambda: nn.HuberLoss(delta=1j)),
        refused(lambda: nn.BatchNorm1d(3, eps=0.0)(x)),
        refused(lambda: nn.BatchNorm1d(3, eps=-1.0).eval()(x)),
        nn.BatchNorm1d(3, eps=0.0).eval()(x),
        [nn.init.orthogonal_(torch.empty(3, 4, device="meta")).shape, nn.init.sparse_(torch.empty(3, 4, device="meta"), 0.5).shape],
    ]
