"""scaled_dot_product_attention and MultiheadAttention against PyTorch: masks, shapes, dtypes, gradients of both orders, errors."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from layer_oracle import assert_near, check_errors, check_function, inputs, pair, torch, values
from oracle import outcome

import flambeau
from flambeau.kernels import arrays
from flambeau.kernels.native import native

# (queries, keys, features, features of values): around the sizes of blocks, and of no round size
SIZES = [(64, 64, 32, 32), (7, 5, 3, 9), (130, 300, 16, 16), (65, 129, 20, 40), (1, 70, 8, 8), (70, 1, 8, 8)]


def attend(t, *operands, **options):
    return t.nn.functional.scaled_dot_product_attention(*operands, **options)


@pytest.fixture(params=["compiled", "numpy"])
def path(request, monkeypatch):
    """With the compiled loops, and without."""
    if request.param == "numpy":
        for name in ("_compiled", "_on_gpu"):
            monkeypatch.setattr(f"flambeau.kernels.templates.attention.{name}", lambda *operands: False)
    elif native.lib is None:
        pytest.skip("nothing is compiled here")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_values_and_gradients(size, causal, dtype, path):
    """Value and gradients are PyTorch's, whatever the block sizes."""
    length, keys, e, v = size
    check_function(lambda t, *x: attend(t, *x, is_causal=causal), (2, 3, length, e), (2, 3, keys, e), (2, 3, keys, v), dtype=dtype)


MASKS = {
    "bool": lambda rng: rng.random((9, 70)) > 0.3, "bool by head": lambda rng: rng.random((2, 3, 9, 70)) > 0.3,
    "keys": lambda rng: rng.random((2, 1, 1, 70)) > 0.3, "queries": lambda rng: rng.random((9, 1)) > 0.3, "float": lambda rng: rng.standard_normal((9, 70)),
    "float by batch": lambda rng: rng.standard_normal((2, 1, 9, 70)), "one number": lambda rng: rng.standard_normal((1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masks(kind, dtype, path):
    """Masks of both kinds repeat to the scores."""
    mask = MASKS[kind](np.random.default_rng(1))
    ours, theirs = inputs(mask, dtype=dtype, grad=False)
    by = {flambeau: ours[0], torch: theirs[0]}
    check_function(lambda t, *x: attend(t, *x, attn_mask=by[t]), (2, 3, 9, 5), (2, 3, 70, 5), (2, 3, 70, 5), dtype=dtype)


@pytest.mark.parametrize("way", ["bool", "float", "float with gradient", "dropout"])
def test_queries_that_see_nothing(way, path):
    """A query whose keys are all masked gives 0, and so do its gradients: never NaN."""
    (q, k, v), _ = inputs((2, 4, 5), (2, 6, 5), (2, 6, 5))
    mask = flambeau.ones(4, 6, dtype=flambeau.bool)
    mask[1] = False
    if way.startswith("float"):
        mask = flambeau.zeros(4, 6).masked_fill(~mask, -float("inf")).requires_grad_(way != "float")
    out = attend(flambeau, q, k, v, attn_mask=mask, dropout_p=0.5 if way == "dropout" else 0.0)
    out.sum().backward()
    assert (out[:, 1] == 0).all() and (q.grad[:, 1] == 0).all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    assert way != "float with gradient" or mask.grad.isfinite().all()


@pytest.mark.parametrize(
    "shapes", [((5, 3), (4, 3)), ((2, 5, 3), (2, 4, 3)), ((2, 3, 5, 3), (3, 4, 3)), ((1, 3, 5, 3), (2, 1, 4, 3)), ((2, 2, 2, 5, 3),) * 2]
)
def test_leading_dimensions(shapes, path):
    """Any number of leading dimensions, which repeat; gradients are those of the operands given."""
    check_function(attend, shapes[0], shapes[1], shapes[1])


@pytest.mark.parametrize("heads", [(6, 2, 2), (6, 1, 1), (4, 4, 4), (4, 2, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_grouped_queries(heads, masked, path):
    """With enable_gqa each head of the keys serves several of the queries, through gradients and masks."""
    mask = np.random.default_rng(1).random((2, heads[0], 7, 9)) > 0.3
    ours, theirs = inputs(mask)
    by = {flambeau: ours[0], torch: theirs[0]} if masked else {flambeau: None, torch: None}
    check_function(
        lambda t, *x: attend(t, *x, enable_gqa=True, attn_mask=by[t]), (2, heads[0], 7, 5), (2, heads[1], 9, 5), (2, heads[2], 9, 5)
    )


def test_scale():
    """scale= takes the place of 1 / sqrt(E)."""
    check_function(lambda t, *x: attend(t, *x, scale=0.3), (3, 5, 4), (3, 6, 4), (3, 6, 4))


def test_layout():
    """Heads that lie beside each other in the query do so in the result, as in PyTorch: joining them is a view."""
    ours, theirs = inputs(*[(2, 3, 5, 4)] * 3)
    assert attend(flambeau, *ours).stride() == attend(torch, *theirs).stride()
    turned = [[x.transpose(1, 2) for x in operands] for operands in (ours, theirs)]
    assert attend(flambeau, *turned[0]).stride() == attend(torch, *turned[1]).stride()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_strided_operands(dtype, path):
    """Transposed heads, every other feature, and repeated keys are read where they lie."""
    check_function(lambda t, q, k, v: attend(t, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)), *[(2, 70, 3, 8)] * 3, dtype=dtype)
    check_function(lambda t, q, k, v: attend(t, q[..., ::2], k[..., 1::2], v[..., ::2]), *[(2, 3, 70, 8)] * 3, dtype=dtype)
    check_function(lambda t, q, k, v: attend(t, q, k.expand(3, 70, 8), v.expand(3, 70, 8)), (3, 70, 8), (70, 8), (70, 8), dtype=dtype)


def test_slices_of_one_transposed_array(path):
    """Gradients of what was cut out of one array come as slices of one: also where its rows are not dense."""
    check_function(lambda t, x: attend(t, *x.transpose(-1, -2).unbind(0)), (3, 2, 8, 16))


def test_dropout_is_pytorchs():
    """The same seed drops the same weights."""
    check_function(lambda t, *x: attend(t, *x, dropout_p=0.4), *[(2, 3, 5, 4)] * 3)
    check_function(lambda t, *x: attend(t, *x, dropout_p=0.4, is_causal=True), *[(2, 3, 5, 4)] * 3)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.7}])
def test_second_derivatives(options, path):
    """Derivatives of derivatives, through the formula."""
    check_function(lambda t, *x: attend(t, *x, **options), *[(2, 5, 4)] * 3, second=True)


def test_gradient_of_the_mask():
    """A mask of numbers may be learned."""
    check_function(lambda t, q, k, v, m: attend(t, q, k, v, attn_mask=m), (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), (5, 6))


def test_large_scores_do_not_overflow(path):
    """Scores in the thousands, which exp alone could not take."""
    check_function(lambda t, q, k, v: attend(t, q * 60, k * 60, v), (2, 70, 8), (2, 200, 8), (2, 200, 8), dtype="float64", tolerance=1e-6)


def test_not_a_number_spreads_to_its_row_only(path):
    """A NaN in one query makes that row NaN and no other."""
    (q, k, v), _ = inputs((70, 8), (90, 8), (90, 8), grad=False)
    q[3, 2] = float("nan")
    out = attend(flambeau, q, k, v)
    assert out[3].isnan().all() and out.isnan().sum() == 8


def test_nothing(path):
    """No keys give 0; no queries, or no samples, an empty result."""
    for shapes in (((2, 3, 4), (2, 0, 4)), ((2, 0, 4), (2, 3, 4)), ((0, 3, 4), (0, 3, 4)), ((2, 3, 0), (2, 5, 0))):
        ours, theirs = inputs(shapes[0], shapes[1], (*shapes[1][:-1], 6), grad=False)
        assert_near(attend(flambeau, *ours), attend(torch, *theirs), str(shapes))


@pytest.mark.skipif(native.lib is None, reason="without compiled kernels there is one thread")
def test_threads_do_not_change_bits():
    """The result and its gradients are the same bits with 1, 2 and 5 threads."""
    before, found = flambeau.get_num_threads(), []
    try:
        for n in (1, 2, 5):
            flambeau.set_num_threads(n)
            operands, _ = inputs(*[(3, 4, 300, 24)] * 3)
            out = attend(flambeau, *operands, is_causal=True)
            out.square().sum().backward()
            found.append([out.detach(), *(t.grad for t in operands)])
    finally:
        flambeau.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(found[0], other, strict=True))


def test_scores_are_never_held():
    """Memory grows with L + S, not with L * S: 2^14 queries and keys would need 1 GiB of scores."""
    if native.lib is None:
        pytest.skip("there is no account of memory without compiled kernels")
    q = flambeau.randn(1, 1, 1 << 14, 2)
    native.lib.pool_stats(True)
    attend(flambeau, q, q, q, is_causal=True)
    assert native.lib.pool_stats()["peak"] - native.lib.pool_stats()["live"] < 1 << 22


@pytest.mark.parametrize(
    "shapes",
    [((3,), (4, 3), (4, 3)), ((2, 3), (4, 5), (4, 5))],
)
def test_shapes_that_do_not_fit(shapes):
    """Vectors, and features that differ, are refused."""
    check_errors(attend, *shapes)


def test_other_errors():
    """Dtypes, masks, probabilities and heads that cannot be."""
    shape = (2, 3, 4, 4)
    check_errors(lambda t, q, k, v: attend(t, q, k.double(), v), shape, shape, shape)
    check_errors(lambda t, q, k, v: attend(t, q.int(), k.int(), v.int()), shape, shape, shape)
    check_errors(lambda t, q, k, v: attend(t, q, k, v, attn_mask=t.ones(4, 4, dtype=t.int32)), shape, shape, shape)
    check_errors(lambda t, q, k, v: attend(t, q, k, v, attn_mask=t.ones(5, 4, dtype=t.bool)), shape, shape, shape)
    check_errors(lambda t, q, k, v: attend(t, q, k, v, dropout_p=1.5), shape, shape, shape)
    check_errors(lambda t, q, k, v: attend(t, q, k, v, enable_gqa=True), (2, 3, 4, 4), (2, 2, 4, 4), (2, 2, 4, 4))


def test_ways_of_computing_are_accepted():
    """nn.attention has PyTorch's names; what is no way is refused."""
    from flambeau.nn.attention import SDPBackend, sdpa_kernel

    assert [way.name for way in SDPBackend] == [
        "ERROR",
        "MATH",
        "FLASH_ATTENTION",
        "EFFICIENT_ATTENTION",
        "CUDNN_ATTENTION",
        "OVERRIDEABLE",
    ]
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]), sdpa_kernel(SDPBackend.MATH):
        assert attend(flambeau, *[flambeau.ones(2, 3)] * 3).tolist() == [[1.0] * 3] * 2
    with pytest.raises(AssertionError), sdpa_kernel("math"):
        pass


def test_forbidden_ways_are_not_taken():
    """On the CPU attention runs exactly where PyTorch's has a way left: not by CUDNN_ATTENTION alone, and with dropout by MATH only."""

    def run(t, ways, **options):
        backends = [getattr(t.nn.attention.SDPBackend, way) for way in ways]
        with t.nn.attention.sdpa_kernel(backends):
            return tuple(attend(t, *[t.ones(1, 2, 3, 4)] * 3, **options).shape)

    everything = "MATH FLASH_ATTENTION EFFICIENT_ATTENTION CUDNN_ATTENTION OVERRIDEABLE ERROR".split()
    for ways in (*([way] for way in everything), ["CUDNN_ATTENTION", "MATH"], everything):
        for options in ({}, {"dropout_p": 0.5}):
            theirs, refused = outcome(lambda: run(torch, ways, **options))  # noqa: B023
            ours, problem = outcome(lambda: run(flambeau, ways, **options))  # noqa: B023
            assert (ours, type(problem)) == (theirs, type(refused)), (ways, options)
            assert problem is None or "No viable backend" in str(problem)


# -- MultiheadAttention ----------------------------------------------------------------------------------------------------

LAYERS = [
    {}, {"bias": False}, {"batch_first": True}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    {"kdim": 5, "vdim": 7}, {"kdim": 5, "vdim": 7, "bias": False}, {"dropout": 0.3},
]  # fmt: skip


def both(ours, theirs, call, *shapes, dtype="float32"):
    """call(package, layer, *tensors) -> several results; compares them, and the gradients of everything."""
    a, b = inputs(*shapes, dtype=dtype)
    results = []
    for package, layer, tensors in ((flambeau, ours, a), (torch, theirs, b)):
        package.manual_seed(3)
        found = call(package, layer, *tensors)
        sum((r * r).sum() for r in found if r is not None).backward()
        results.append([*found, *(t.grad for t in tensors), *(p.grad for p in layer.parameters())])
        layer.zero_grad()
    for i, (mine, other) in enumerate(zip(*results, strict=True)):
        assert_near(mine, other, f"number {i}", 5e-5)


@pytest.mark.parametrize("options", LAYERS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_layer(options, need_weights):
    """Repr, state, initial numbers, results and gradients are PyTorch's."""
    ours, theirs = pair("MultiheadAttention", 12, 3, **options)
    kdim, vdim = options.get("kdim", 12), options.get("vdim", 12)
    shapes = [(2, 5, 12), (2, 7, kdim), (2, 7, vdim)] if options.get("batch_first") else [(5, 2, 12), (7, 2, kdim), (7, 2, vdim)]
    both(ours, theirs, lambda t, layer, *x: layer(*x, need_weights=need_weights), *shapes)
    for average in (True, False):
        both(
            ours.eval(),
            theirs.eval(),
            lambda t, layer, *x, a=average: layer(*x, need_weights=need_weights, average_attn_weights=a),
            *shapes,
        )
    if kdim == vdim == 12:
        both(ours, theirs, lambda t, layer, x: layer(x, x, x, need_weights=need_weights), shapes[0])
        both(ours, theirs, lambda t, layer, x, y: layer(x, y, y, need_weights=need_weights), *shapes[:2])
        both(ours, theirs, lambda t, layer, x: layer(x, x, x, need_weights=need_weights), (5, 12))


PADDING = [None, "bool", "float"]


@pytest.mark.parametrize(("padding", "mask"), list(itertools.product(PADDING, [None, "bool", "float", "bool by head", "float by head"])))
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_layer_masks(padding, mask, need_weights):
    """Padding and attention masks of both kinds, together and alone; unbatched too."""
    rng = np.random.default_rng(2)
    for options, batch in (({}, 2), ({"add_bias_kv": True, "add_zero_attn": True}, 2), ({}, None)):
        pad = rng.random((batch or 1, 7)) > 0.6
        pad[:, 0] = False
        look = rng.random((3 * (batch or 1), 5, 7) if mask and "head" in mask else (5, 7)) > 0.6
        look[..., 0] = False
        pad = pad if padding == "bool" else np.where(pad, -1.5, 0.5)
        look = look if mask and "bool" in mask else np.where(look, -np.inf, 0.5)
        given = {}
        for package, found in zip((flambeau, torch), inputs(pad if batch else pad[0], look, grad=False), strict=True):
            given[package] = {"key_padding_mask": found[0] if padding else None, "attn_mask": found[1] if mask else None}
        ours, theirs = pair("MultiheadAttention", 12, 3, **options)
        n = (batch,) if batch else ()
        both(ours, theirs, lambda t, layer, *x: layer(*x, need_weights=need_weights, **given[t]), (5, *n, 12), (7, *n, 12), (7, *n, 12))  # noqa: B023


def test_causal_hint():
    """is_causal with the causal mask gives what the mask alone gives; without it, it is refused."""
    ours, theirs = pair("MultiheadAttention", 8, 2)
    masks = {t: t.nn.Transformer.generate_square_subsequent_mask(5) for t in (flambeau, torch)}
    for need_weights in (True, False):
        both(ours, theirs, lambda t, layer, x: layer(x, x, x, attn_mask=masks[t], is_causal=True, need_weights=need_weights), (5, 2, 8))  # noqa: B023
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x, is_causal=True), (5, 2, 8))


def test_layer_errors():
    """Sizes that do not divide, and shapes that do not fit, raise PyTorch's exceptions."""
    for args in ((0, 1), (8, 0), (8, 3)):
        check_errors(lambda t, a=args: t.nn.MultiheadAttention(*a))
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x), (2, 3, 5, 8))
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x), (3, 5, 6))
    check_errors(lambda t, x, y: t.nn.MultiheadAttention(8, 2)(x, y, y), (3, 5, 8), (5, 8))
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=t.ones(4, 4)), (3, 2, 8))
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=t.ones(3)), (3, 2, 8))
    check_errors(lambda t, x: t.nn.MultiheadAttention(8, 2)(x, x, x, key_padding_mask=t.ones(2, 4, dtype=t.bool)), (3, 2, 8))


def test_projected_keys_and_values_may_be_given():
    """F.multi_head_attention_forward takes static_k and static_v."""
    ours, theirs = pair("MultiheadAttention", 8, 2)

    def call(t, layer, x, k, v):
        return t.nn.functional.multi_head_attention_forward(
            x, x, x, 8, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0, layer.out_proj.weight, layer.out_proj.bias,
            static_k=k, static_v=v,
        )  # fmt: skip

    a, b = inputs((3, 2, 8), (4, 6, 4), (4, 6, 4))
    for mine, other in zip(call(flambeau, ours, *a), call(torch, theirs, *b), strict=True):
        assert_near(mine, other, "result")


def test_values_are_numpys():
    """The formula, written in NumPy, is the last word."""
    (q, k, v), _ = inputs((5, 4), (6, 4), (6, 3), dtype="float64", grad=False)
    scores = values(q) @ values(k).T / 2
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(values(attend(flambeau, q, k, v)), weights @ values(v), rtol=1e-12)


def test_causal_and_a_mask():
    """Both at once where PyTorch's kernel takes both; refused where values have another size than keys."""
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]
    check_function(lambda t, *x: attend(t, *x, attn_mask=t.ones(5, 7, dtype=t.bool).tril(2), is_causal=True), *shapes)
    shapes[2] = (2, 3, 7, 6)
    check_errors(lambda t, *x: attend(t, *x, attn_mask=t.ones(5, 7, dtype=t.bool), is_causal=True), *shapes)


@pytest.mark.parametrize("corner", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize(("length", "keys"), [(5, 7), (5, 5), (1, 7)])
def test_causal_biases(corner, length, keys):
    """A triangle known by its corner attends as PyTorch's does, by position and by name, and prints as the triangle."""
    import torch.nn.attention.bias as theirs

    import flambeau.nn.attention.bias as ours

    assert repr(getattr(ours, corner)(length, keys)) == repr(getattr(theirs, corner)(length, keys))
    shapes = [(2, 3, length, 4), (2, 3, keys, 4), (2, 3, keys, 6)]

    def bias(t):
        return getattr(ours if t is flambeau else theirs, corner)(length, keys)

    check_function(lambda t, *x: attend(t, *x, bias(t)), *shapes)
    check_function(lambda t, *x: attend(t, *x, attn_mask=bias(t), scale=0.3), *shapes)
    for t in (flambeau, torch):
        with pytest.raises(ValueError, match="causal=True"):
            attend(t, *(t.ones(shape) for shape in shapes), bias(t), is_causal=True)


def test_causal_biases_warn_and_refuse():
    import torch.nn.attention.bias as theirs

    import flambeau.nn.attention.bias as ours

    for module in (ours, theirs):
        with pytest.warns(UserWarning):
            module.causal_lower_right(7, 5)
        for wrong in (lambda m=module: m.causal_upper_left(3), lambda m=module: m.CausalBias(1, 2, 3)):
            with pytest.raises(AssertionError):
                wrong()


@pytest.mark.parametrize("way", ["MATH", "FLASH_ATTENTION"])
def test_a_mask_beside_is_causal_is_for_the_fused_way_alone(way):
    """PyTorch's fused kernel takes both, its step by step way refuses."""
    for f, room in ((flambeau, flambeau.nn.attention), (torch, torch.nn.attention)):
        q, mask = f.ones(1, 2, 4, 6), f.ones(1, 2, 4, 4, dtype=f.bool)
        refused = pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True")
        with room.sdpa_kernel([getattr(room.SDPBackend, way)]), refused if way == "MATH" else contextlib.nullcontext():
            f.nn.functional.scaled_dot_product_attention(q, q, q, mask, is_causal=True)


@pytest.mark.parametrize("cut", ["split", "unbind"])
def test_gradients_of_one_product_are_not_joined(cut, monkeypatch):
    """Queries, keys and values that are slices of one tensor get gradients that are slices of one, which nobody has to put together."""
    found, together = [], arrays.lying_together
    monkeypatch.setattr(arrays, "lying_together", lambda *given: (found.append(together(*given)), found[-1])[1])
    values = np.random.default_rng(0).standard_normal((2, 6, 3 * 8))
    grads = []
    for package in (flambeau, torch):
        x = package.tensor(values, dtype=package.float32, requires_grad=True)
        pieces = x.split(8, 2) if cut == "split" else x.view(2, 6, 3, 8).unbind(2)
        q, k, v = (piece.view(2, 6, 2, 4).transpose(1, 2) for piece in pieces)
        package.nn.functional.scaled_dot_product_attention(q, k, v).square().sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, 1e-4, 1e-5)
    assert len(found) == 1 and (found[0] is not None or native.lib is None)
