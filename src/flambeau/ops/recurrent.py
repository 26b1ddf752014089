"""Recurrent networks: a state that is carried from step to step of a sequence.

    rnn    h' = tanh(a)   (or relu)                                     a = W_ih x + b_ih + W_hh h + b_hh
    gru    h' = (1 - z) n + z h         r, z = sigmoid(a_r), sigmoid(a_z),   n = tanh(W_in x + b_in + r (W_hn h + b_hn))
    lstm   h' = o tanh(c'), c' = f c + i g              i, f, o = sigmoid(a_i), sigmoid(a_f), sigmoid(a_o),   g = tanh(a_g)

One layer in one direction is one product for the input's part of all steps, then `_recurrence`: one operation for all steps, whose loops
are compiled (kernels/templates/recurrent.py). Where they are not, and where derivatives are differentiated again, a step is made of operations.

Sequences are rows: those of the first step, then those of the second, `sizes` saying how many each has. Sizes that fall are sequences of
different lengths, the longest first. The reverse direction begins each sequence at its own end.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau import dtypes
from flambeau.kernels.templates import recurrent
from flambeau.ops import asking
from flambeau.ops.asking import array_of, is_recorded, pulled_back
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.dropout import functional_dropout
from flambeau.ops.joining import cat, stack
from flambeau.ops.linear import linear

# -- cells: one step -------------------------------------------------------------------------------------------------------
# (x's part, h's part, h, c) -> (h', c'); c is the lstm's.


def _lstm(gx, gh, h, c):
    i, f, g, o = (gx + gh).chunk(4, 1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * new.tanh(), new


def _gru(gx, gh, h, c):
    (xr, xz, xn), (hr, hz, hn) = gx.chunk(3, 1), gh.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (h - n), None


CELLS: dict[str, Callable] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda gx, gh, h, c: ((gx + gh).tanh(), None),
    "rnn_relu": lambda gx, gh, h, c: ((gx + gh).relu(), None),
}


# -- one layer in one direction, step by step ------------------------------------------------------------------------------


def steps_of(sizes, reverse: bool):
    """(which step, its first row, how many rows it has, how many of them come from the step before it) in the order of work."""
    starts = [0]
    for n in sizes:
        starts.append(starts[-1] + n)
    before = 0
    for t in range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes)):
        yield t, starts[t], sizes[t], min(before, sizes[t])
        before = sizes[t]


def _entering(state, start, kept: int, n: int):
    """The state of n rows: those that go on, then those that start here."""
    if kept == n:
        return state if state.shape[0] == n else state[:n]
    return start[:n] if kept == 0 else cat([state[:kept], start[kept:n]])


def _by_steps(cell: str, gates, weight, bias, h0, c0, sizes, reverse: bool, project=None, product=linear):
    """(outputs, cell states or None), made of operations."""
    h, c, step = h0, c0, CELLS[cell]
    outs, cells = [None] * len(sizes), [None] * len(sizes)
    for t, first, n, kept in steps_of(sizes, reverse):
        h = _entering(h, h0, kept, n)
        c = c if c is None else _entering(c, c0, kept, n)
        h, c = step(gates[first : first + n], product(h, weight, bias), h, c)
        if project is not None:
            h = linear(h, project)
        outs[t], cells[t] = h, c
    return cat(outs), None if c0 is None else cat(cells)


# -- one layer in one direction, at once -----------------------------------------------------------------------------------


@on_arrays(name="_recurrence", returns="out cell kept")
def _recurrence(gates, weight, bias, h0, c0, sizes, reverse, cell, keeps):
    """(outputs, the lstm's cell states, what backward needs), all of them rows. gates (rows, G H), weight (G H, H), h0 and c0 (N, H)."""
    return recurrent.forward(cell, gates, weight, bias, h0, c0, sizes, reverse, keeps)


@_recurrence.meta
def _(gates, weight, bias, h0, c0, sizes, reverse, cell, keeps):
    return [(shape, gates.dtype) for shape in recurrent.shapes(cell, sum(sizes), weight.shape[1], keeps)]


@_recurrence.joint
def _(grads, gates, weight, bias, h0, c0, sizes, reverse, cell, results, again):
    if again:
        operands = {"gates": gates, "weight": weight, "bias": bias, "h0": h0, "c0": c0}
        return pulled_back(lambda **given: _by_steps(cell, sizes=sizes, reverse=reverse, **given), operands, grads[:2])
    found = _recurrence_backward(*grads[:2], weight, h0, c0, *results, sizes, reverse, cell)
    return dict(zip(("gates", "weight", "bias", "h0", "c0"), found, strict=True))  # no one asks for those of what is not there


@on_arrays(name="_recurrence_backward", differentiable=False)
def _recurrence_backward(grad, grad_cell, weight, h0, c0, out, states, kept, sizes, reverse, cell):
    """The gradients of gates, weight, bias, h0 and c0."""
    return recurrent.backward(cell, grad, grad_cell, weight, h0, c0, out, states, kept, sizes, reverse)


@_recurrence_backward.meta
def _(grad, grad_cell, weight, h0, c0, out, **_):
    of_gates = (out.shape[0], weight.shape[0])
    return [(shape, weight.dtype) for shape in (of_gates, weight.shape, weight.shape[:1], h0.shape, (0, 0) if c0 is None else c0.shape)]


def _direction(cell: str, x, sizes, h0, c0, weights, biased: bool, reverse: bool):
    """(outputs, last h, last c) of one layer in one direction; x (rows, features)."""
    w_ih, w_hh, *rest = weights
    b_ih, b_hh = rest[:2] if biased else (None, None)
    project = rest[-1] if len(rest) > 2 * biased else None
    if cell != "gru" and biased:  # both only ever occur as a sum
        b_ih, b_hh = b_ih + b_hh, None
    gates = linear(x, w_ih, b_ih)
    _check_state(gates, h0, c0)
    half = gates.dtype.itemsize == 2
    if half:
        gates, w_hh, b_hh, h0, c0, project = (t if t is None else t.to(dtypes.float32) for t in (gates, w_hh, b_hh, h0, c0, project))
    if project is None and recurrent.compiled(cell, array_of(gates), w_hh.shape[1]):
        keeps = _is_recorded(gates, w_ih, (w_hh, b_hh, h0, c0))
        out, states, _ = _recurrence(gates, w_hh, b_hh, h0, c0, sizes, reverse, cell, keeps)
    else:
        out, states = _by_steps(cell, gates, w_hh, b_hh, h0, c0, sizes, reverse, project)
    last_h, last_c = _last(out, sizes, reverse), None if c0 is None else _last(states, sizes, reverse)
    if half:
        out, last_h, last_c = (t if t is None else t.to(x.dtype) for t in (out, last_h, last_c))
    return out, last_h, last_c


def _is_recorded(gates, w_ih, others) -> bool:
    """Whether backward may ask for a recurrence of these: gates, which are made of w_ih, and others."""
    if gates.requires_grad or w_ih.requires_grad:
        return gates.requires_grad
    # What is made of a tensor that wants a gradient wants one, too, unless nothing is being recorded.
    return any(t is not None and t.requires_grad and (t[:1] * 1).requires_grad for t in others)


def _check_state(gates, *states) -> None:
    for state in states:
        if state is not None and state.dtype is not gates.dtype:
            raise RuntimeError(
                f"the hidden state has dtype {state.dtype}, but input and weights have {gates.dtype}: they must have the same dtype"
            )


def _last(rows, sizes, reverse: bool):
    """The row each sequence ends with, in the direction of work."""
    n = sizes[0]
    if reverse or sizes[-1] == n:
        return rows[:n] if reverse else rows[rows.shape[0] - n :]
    ends, start = [0] * n, 0
    for size in sizes:
        ends[:size] = range(start, start + size)
        start += size
    return rows[ends]


# -- whole networks --------------------------------------------------------------------------------------------------------


def _network(cell: str, x, sizes, hx, cx, params, biased, layers: int, dropout, train, bidirectional, direction):
    """(output rows, last h, last c) of all layers; hx and cx (layers * directions, N, H)."""
    ways = 2 if bidirectional else 1
    each, last_h, last_c = len(params) // (layers * ways), [], []
    hx, cx = hx.unbind(0), cx if cx is None else cx.unbind(0)
    for layer in range(layers):
        outs = []
        for way in range(ways):
            i = layer * ways + way
            weights = params[i * each : (i + 1) * each]
            out, h, c = direction(cell, x, sizes, hx[i], None if cx is None else cx[i], weights, biased, way == 1)
            outs.append(out)
            last_h.append(h)
            last_c.append(c)
        x = cat(outs, 1) if bidirectional else outs[0]
        if dropout and train and layer < layers - 1:
            x = functional_dropout(x, dropout)
    return x, stack(last_h), None if cx is None else stack(last_c)


def run(cell: str, packed: bool, arguments, direction=_direction):
    """What the operations below do; `direction` computes one layer in one direction."""
    if packed:
        data, batch_sizes, hx, params, biased, layers, dropout, train, bidirectional = arguments
        sizes = tuple(batch_sizes.tolist())
    else:
        input, hx, params, biased, layers, dropout, train, bidirectional, batch_first = arguments
        apart = direction is not _direction or asking.is_watched() or (dropout and train and layers > 1)
        found = None if apart else _unrecorded(cell, input, hx, params, biased, layers, bidirectional, batch_first)
        if found is not None:
            return found
        input = input.transpose(0, 1) if batch_first else input
        sizes = (input.shape[1],) * input.shape[0]
        data = input.reshape(input.shape[0] * input.shape[1], input.shape[2])
    if not sizes:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    h, c = hx if cell == "lstm" else (hx, None)
    if cell == "lstm" and not isinstance(hx, (tuple, list)):
        raise RuntimeError("lstm expects two hidden states: hx = (h, c)")
    out, h, c = _network(cell, data, sizes, h, c, list(params), biased, layers, dropout, train, bidirectional, direction)
    if not packed:
        last = _last_node(cell, out, bidirectional, len(params) // layers // (2 if bidirectional else 1) > 2 + 2 * biased)
        out = _by_time(out, len(sizes), batch_first, last)
    return (out, h) if c is None else (out, h, c)


def _unrecorded(cell: str, input, hx, params, biased, layers, bidirectional, batch_first) -> tuple | None:
    """All layers at once, where no gradient is wanted and there are loops for it."""
    states, params, ways = list(hx) if isinstance(hx, (tuple, list)) else [hx], list(params), 2 if bidirectional else 1
    if len(states) != 1 + (cell == "lstm") or is_recorded(input, *states, *params):
        return None
    bare = array_of(input), [*map(array_of, states)], [*map(array_of, params)]
    samples = input.shape[0 if batch_first else 1] if input.dim() == 3 else -1
    if not recurrent.fits(cell, *bare, biased, layers, ways) or any(s.shape[1] != samples for s in states):
        return None
    return _whole_network(input, states, params, cell, biased, layers, ways, bool(batch_first))


@on_arrays(public=False, method=False, differentiable=False)
def _whole_network(input, states, params, cell, biased, layers, ways, batch_first):
    """(outputs, last states ...) of whole sequences through all layers."""
    return recurrent.network(cell, input, states, params, biased, layers, ways, batch_first)


@composite(public=False, method=False, shown="view", grad_name=lambda rows, steps, batch_first, names: names[batch_first])
def _by_time(rows, steps, batch_first, names):
    """(T N, F) -> (T, N, F) or (N, T, F). The node is shown under one of the names."""
    found = rows.reshape((steps, rows.shape[0] // steps, rows.shape[1]))
    return found.transpose(0, 1) if batch_first else found


def _last_node(cell: str, out, bidirectional: bool, projected: bool) -> tuple[str, str]:
    """What PyTorch's last node is called: it stacks the steps, unless a library does all of them. The other way round: with batch_first."""
    at_once = cell == "lstm" and not projected and out.dtype is dtypes.float32
    steps = "CatBackward0" if bidirectional else "MkldnnRnnLayerBackward0" if at_once else "StackBackward0"
    return steps, "TransposeBackward0" if cell == "lstm" else "TransposeBackward1"


def _declare(cell: str, results: str, meaning: str, autocast: str = "half") -> None:
    doc = f"{results} of {meaning}. For packed sequences: {cell}(data, batch_sizes, hx, params, ..., bidirectional)."

    @composite(name=cell, method=False, autocast=autocast, doc=doc)
    def network(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        packed = hasattr(hx if cell == "lstm" else params, "_array")
        return run(cell, packed, (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first))


_declare("lstm", "(output, h, c)", "an lstm; with hx = (h, c)")
_declare("gru", "(output, h)", "a gru", "cpu state, cuda half")
_declare("rnn_tanh", "(output, h)", "a plain network with tanh")
_declare("rnn_relu", "(output, h)", "a plain network with relu")


# -- single steps ----------------------------------------------------------------------------------------------------------


def _cell(cell: str, input, hx, cx, w_ih, w_hh, b_ih, b_hh):
    """(h', c') of one step for inputs (N, features) and states (N, H)."""
    given, features, hidden = tuple(input.shape), w_ih.shape[1], w_hh.shape[1]
    if given[-1] != features:
        raise RuntimeError(f"input has inconsistent input_size: got {given[-1]} expected {features}")
    for number, state in enumerate((hx, cx)):
        if state is None:
            continue
        found = tuple(state.shape[:2])  # of three dimensions, if there is no batch and the state has one
        if found[-1] != hidden:
            raise RuntimeError(f"hidden{number} has inconsistent hidden_size: got {found[-1]}, expected {hidden}")
        if found[0] != given[0]:
            raise RuntimeError(f"Input batch size {given[0]} doesn't match hidden{number} batch size {found[0]}: a state for every sample")
    if cell != "gru" and b_ih is not None and b_hh is not None:  # both only ever occur as a sum
        b_ih, b_hh = b_ih + b_hh, None
    gates, states = linear(input, w_ih, b_ih), (hx, cx)
    if (
        gates.dim() == 2
        and (b_hh is None or cell == "gru")
        and recurrent.compiled(cell, array_of(gates), hidden)
        and _are_alike(gates, hx, cx, w_hh, b_hh)
    ):
        keeps = _is_recorded(gates, w_ih, (w_hh, b_hh, *states))
        h, c, _ = _recurrence(gates, w_hh, b_hh, *states, given[:1], False, cell, keeps)
        return h, None if cx is None else c
    return CELLS[cell](gates, linear(hx, w_hh, b_hh), *states)


def _are_alike(gates, *others) -> bool:
    """Whether all are of one dtype, with as many dimensions as a loop over samples takes."""
    dtype = gates.dtype
    return all([t is None or (t.dtype is dtype and t.dim() <= 2) for t in others])


@composite(method=False, grad_name="MulBackward0", autocast="cpu state, cuda half")
def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """(h', c') after one step; hx = (h, c)."""
    if not isinstance(hx, (tuple, list)):
        raise TypeError(f"lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not {type(hx).__name__}")
    if len(hx) != 2:
        raise RuntimeError(f"lstm_cell expects two hidden states, got {len(hx)}")
    return _cell("lstm", input, *hx, w_ih, w_hh, b_ih, b_hh)


def _declare_cell(cell: str, node: str, autocast: str = "cuda half") -> None:
    @composite(name=f"{cell}_cell", method=False, grad_name=node, autocast=autocast, doc="h' after one step.")
    def step(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return _cell(cell, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


_declare_cell("gru", "AddBackward0", "cpu state, cuda half")
_declare_cell("rnn_tanh", "TanhBackward0")
_declare_cell("rnn_relu", "ReluBackward0")
