"""Where results lie in memory: the order of their elements is PyTorch's, so that view() works where it works there, and random masks agree.

An operation either keeps the order of its input (pointwise ones do), or starts afresh in row-major order; images whose channels lie last
often keep them there.
"""

from __future__ import annotations

import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")

LAYOUTS = {
    "transposed": lambda f, x: x[0].transpose(0, 1),
    "permuted": lambda f, x: x.permute(3, 0, 1, 2),
    "channels last": lambda f, x: x.to(memory_format=f.channels_last),
    "expanded": lambda f, x: x[:1].expand(3, 4, 4, 6),
    "with gaps": lambda f, x: x[:, :, :, ::2],
    "matrix": lambda f, x: x[0, 0].T,
}


def tokens(x):
    """Images as sequences (N, C, L) that lie in memory as (N, L, C)."""
    return x.flatten(2).mT.contiguous().mT if x.dim() > 3 else x


OPERATIONS = {
    "batch_norm": lambda f, x: f.nn.functional.batch_norm(x, None, None, training=True),
    "batch_norm in evaluation": lambda f, x: f.nn.functional.batch_norm(x, f.zeros(x.shape[1]), f.ones(x.shape[1])),
    "constant pad": lambda f, x: f.nn.functional.pad(x, (1, 2)),
    "constant pad that only cuts": lambda f, x: f.nn.functional.pad(x, (0, -1)),
    "circular pad": lambda f, x: f.nn.functional.pad(x, (1, 1) * (x.dim() - 2 or 1), mode="circular"),
    "reflection pad": lambda f, x: f.nn.functional.pad(x, (1, 1) * (x.dim() - 2 or 1), mode="reflect"),
    "replication pad of no width": lambda f, x: f.nn.functional.pad(x, (0, 0) * (x.dim() - 2 or 1), mode="replicate"),
    "avg_pool of tokens": lambda f, x: f.nn.functional.avg_pool1d(tokens(x), 2),
    "adaptive_avg_pool of tokens": lambda f, x: f.nn.functional.adaptive_avg_pool1d(tokens(x), 2),
    "max_pool of tokens": lambda f, x: f.nn.functional.max_pool1d(tokens(x), 2, return_indices=True)[1],
    "adaptive_max_pool of tokens": lambda f, x: f.nn.functional.adaptive_max_pool1d(tokens(x), 2),
    "dropout": lambda f, x: f.nn.functional.dropout(x, 0.5),
    "gelu": lambda f, x: f.nn.functional.gelu(x),
    "index_select": lambda f, x: x.index_select(1, f.tensor([1, 0])),
    "layer_norm": lambda f, x: f.nn.functional.layer_norm(x, x.shape[-1:]),
    "logsigmoid": lambda f, x: f.nn.functional.logsigmoid(x),
    "masked_fill": lambda f, x: x.masked_fill(x > 0.5, 1.0),
    "masked_fill of a row": lambda f, x: x.masked_fill(x[0] > 0.5, 1.0),
    "one_hot": lambda f, x: f.nn.functional.one_hot((x > 0.5).long(), 2),
    "renorm": lambda f, x: x.renorm(2, 0, 1.0),
    "rms_norm": lambda f, x: f.nn.functional.rms_norm(x, x.shape[-1:], f.ones(x.shape[-1])),
    "rrelu": lambda f, x: f.nn.functional.rrelu(x, training=True),
    "rrelu in evaluation": lambda f, x: f.nn.functional.rrelu(x),
    "softmax": lambda f, x: x.softmax(-1),
    "where": lambda f, x: f.where(x > 0.5, x, 0.0),
}
IMAGES = {
    "channel_shuffle": lambda f, x: f.nn.functional.channel_shuffle(x, 2),
    "channel_shuffle of one group": lambda f, x: f.nn.functional.channel_shuffle(x, 1),
    "pixel_shuffle by 1": lambda f, x: f.nn.functional.pixel_shuffle(x, 1),
    "pixel_shuffle": lambda f, x: f.nn.functional.pixel_shuffle(x, 2),
    "pixel_unshuffle by 1": lambda f, x: f.nn.functional.pixel_unshuffle(x, 1),
    "pixel_unshuffle": lambda f, x: f.nn.functional.pixel_unshuffle(x, 2),
}


def picture(f):
    return f.arange(1, 193).reshape(2, 4, 4, 6) / 193


def strides(result):
    """Those that matter: a dimension of size 1 may have any."""
    return [s for s, size in zip(result.stride(), result.shape, strict=True) if size > 1]


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_order_is_pytorchs(name, order):
    """The result's strides are PyTorch's."""
    theirs, ours = (OPERATIONS[name](f, LAYOUTS[order](f, picture(f))) for f in (torch, flambeau))
    assert strides(ours) == strides(theirs)


@pytest.mark.parametrize("order", ["transposed", "channels last"])
@pytest.mark.parametrize("name", IMAGES)
def test_shuffles_copy(name, order):
    """Shuffled images have PyTorch's strides, and share no memory with the input even where nothing moves."""
    theirs, ours = (IMAGES[name](f, LAYOUTS[order](f, picture(f))) for f in (torch, flambeau))
    assert strides(ours) == strides(theirs)
    assert ours.tolist() == theirs.tolist()
    x = LAYOUTS[order](flambeau, picture(flambeau))
    assert IMAGES[name](flambeau, x).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


BATCHES = {
    "det": lambda f, a: f.linalg.det(a),
    "logdet": lambda f, a: f.linalg.slogdet(a)[1],
    "cond": lambda f, a: f.linalg.cond(a),
    "eigvals": lambda f, a: f.linalg.eigvals(a),
    "eigvalsh": lambda f, a: f.linalg.eigvalsh(a),
    "matrix_rank": lambda f, a: f.linalg.matrix_rank(a),
    "pinv": lambda f, a: f.linalg.pinv(a),
    "svdvals": lambda f, a: f.linalg.svdvals(a),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_matrices_are_in_row_major_order(name):
    """Also where the batch was transposed."""
    found = []
    for f in (torch, flambeau):
        a = (f.arange(96.0).reshape(2, 3, 4, 4).sin() + 4 * f.eye(4)).transpose(0, 1)
        result = BATCHES[name](f, a + a.mT)
        found.append((result.stride(), result.is_contiguous()))
    assert found[1] == found[0]


FACTORS = {
    "cholesky": lambda f, a: f.linalg.cholesky(a),
    "cholesky, upper": lambda f, a: f.linalg.cholesky(a, upper=True),
    "cholesky_inverse": lambda f, a: f.cholesky_inverse(a),
    "cholesky_solve": lambda f, a: f.cholesky_solve(a[..., :3], a),
    "eig": lambda f, a: f.linalg.eig(a),
    "eigh": lambda f, a: f.linalg.eigh(a),
    "geqrf": lambda f, a: f.geqrf(a),
    "householder_product": lambda f, a: f.linalg.householder_product(a, a[..., 0]),
    "inv": lambda f, a: f.linalg.inv(a),
    "inv_ex": lambda f, a: f.linalg.inv_ex(a),
    "inverse, and a product with it": lambda f, a: a.inverse() @ a,
    "inverse, and a sum with it": lambda f, a: a.inverse() + 1,
    "ldl_factor": lambda f, a: f.linalg.ldl_factor(a),
    "lstsq": lambda f, a: f.linalg.lstsq(a, a[..., :3]),
    "lstsq of many equations": lambda f, a: f.linalg.lstsq(a[..., :2], a[..., :3])[:3],
    "lstsq of many equations, gels": lambda f, a: f.linalg.lstsq(a[..., :2], a[..., :3], driver="gels").solution,
    "lstsq of few equations": lambda f, a: f.linalg.lstsq(a[..., :2, :], a[..., :2, :])[:3],
    "lu": lambda f, a: f.linalg.lu(a),
    "lu_factor": lambda f, a: f.linalg.lu_factor(a),
    "lu_solve": lambda f, a: f.linalg.lu_solve(*f.linalg.lu_factor(a), a[..., :3]),
    "lu_solve, adjoint": lambda f, a: f.linalg.lu_solve(*f.linalg.lu_factor(a), a[..., :3], adjoint=True),
    "ormqr": lambda f, a: f.ormqr(a, a[..., 0], a),
    "qr": lambda f, a: f.linalg.qr(a),
    "qr, complete": lambda f, a: f.linalg.qr(a[..., :2], mode="complete"),
    "solve": lambda f, a: f.linalg.solve(a, a[..., :3]),
    "solve, from the right": lambda f, a: f.linalg.solve(a, a[..., :3, :], left=False),
    "solve for vectors": lambda f, a: f.linalg.solve(a, a[..., 0]),
    "solve_ex": lambda f, a: f.linalg.solve_ex(a, a[..., :3]),
    "solve_triangular": lambda f, a: f.linalg.solve_triangular(a, a[..., :3], upper=True),
    "solve_triangular, from the right": lambda f, a: f.linalg.solve_triangular(a, a[..., :3, :], upper=True, left=False),
    "svd": lambda f, a: f.linalg.svd(a[..., :3]),
    "svd, reduced": lambda f, a: f.linalg.svd(a[..., :3], full_matrices=False),
    "svd, older": lambda f, a: a.svd(),
    "tensorinv": lambda f, a: f.linalg.tensorinv(a[..., :4, :4].reshape(-1, 2, 2, 4)[0], ind=2),
    "triangular_solve": lambda f, a: f.triangular_solve(a[..., :3], a),
}
MATRICES = {
    "one": lambda a: a[0, 0],
    "batch": lambda a: a,
    "transposed batch": lambda a: a.transpose(0, 1),
    "large": lambda a: a[0].repeat(1, 6, 6) + 50 * a.new_tensor(1.0).expand(24).diag(),
}


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("which", MATRICES)
@pytest.mark.parametrize("name", FACTORS)
def test_matrices_of_lapack_lie_by_columns(name, which, dtype):
    """What a factorisation or a solver gives lies column after column, whichever way it was computed, and is no view of anything."""
    if name == "ldl_factor":
        pytest.importorskip("scipy_openblas32")  # NumPy's LAPACK does not have it
    found = []
    for f in (torch, flambeau):
        a = (f.arange(96.0).to(getattr(f, dtype)).reshape(2, 3, 4, 4) * 0.7).sin() + 4 * f.eye(4)
        a = MATRICES[which]((a + a.mT) / 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # older names
            results = FACTORS[name](f, a)
        results = [results] if isinstance(results, f.Tensor) else results
        found.append([(strides(r), r.is_contiguous(), r._is_view() and "older" not in name and name != "tensorinv") for r in results])
    assert found[1] == found[0]


RESIZED = {
    "add": lambda f, x, out: f.add(x, 1, out=out),
    "add of a row": lambda f, x, out: f.add(x[0], x, out=out),
    "exp": lambda f, x, out: f.exp(x, out=out),
    "clamp": lambda f, x, out: f.clamp(x, 0.2, 0.5, out=out),
    "lerp": lambda f, x, out: f.lerp(x, x, 0.5, out=out),
    "logit": lambda f, x, out: f.logit(x / 2, out=out),
    "cat": lambda f, x, out: f.cat([x, x], out=out),
    "stack": lambda f, x, out: f.stack([x, x], out=out),
    "softmax": lambda f, x, out: f.softmax(x, 0, out=out),
    "sum": lambda f, x, out: f.sum(x, 0, out=out),
    "cumsum": lambda f, x, out: f.cumsum(x, 0, out=out),
    "inv": lambda f, x, out: f.linalg.inv(f.eye(3) * 2, out=out),
    "matmul": lambda f, x, out: f.matmul(x, x.mT, out=out),
    "gather": lambda f, x, out: f.gather(x, 0, f.zeros_like(x, dtype=f.int64), out=out),
    "quantile": lambda f, x, out: f.quantile(x, f.tensor([0.1, 0.2]), 0, out=out),
    "kron": lambda f, x, out: f.kron(x, x, out=out),
    "fft": lambda f, x, out: f.fft.fft(x, dim=0, out=out.to(f.complex64)),
    "matrix_power": lambda f, x, out: f.linalg.matrix_power(f.ones(3, 2, 2).mT, 0, out=out),
}


@pytest.mark.parametrize("order", ["transposed", "permuted", "channels last", "matrix"])
@pytest.mark.parametrize("name", RESIZED)
def test_what_is_resized_lies_as_a_new_result(name, order):
    """out= of an empty tensor; most operations lay it out as they would a new one."""
    theirs, ours = (RESIZED[name](f, LAYOUTS[order](f, picture(f)), f.empty(0)) for f in (torch, flambeau))
    assert ours.shape == theirs.shape and strides(ours) == strides(theirs)


OTHERS = {
    "complex": lambda f, x: f.complex(x, f.ones(())),
    "polar": lambda f, x: f.polar(x, f.ones(())),
    "igamma": lambda f, x: f.igamma(x, f.ones(())),
    "zeta": lambda f, x: f.special.zeta(x + 2, f.ones(())),
    "chebyshev": lambda f, x: f.special.chebyshev_polynomial_t(x, f.tensor(2.0)),
    "hinge_embedding_loss": lambda f, x: f.nn.functional.hinge_embedding_loss(x, x.sign(), reduction="none"),
    "masked_fill that broadcasts": lambda f, x: x.flatten()[0].expand(x.shape[-1]).masked_fill(x > 0.5, 1.0),
    "stack": lambda f, x: f.stack([x, x]),
    "stack inside": lambda f, x: f.stack([x, x], 1),
    "stack at the end": lambda f, x: f.stack([x, x], -1),
    "unique": lambda f, x: f.unique(x, dim=1),
    "unique_consecutive": lambda f, x: f.unique_consecutive(x, dim=-1),
    "view_copy": lambda f, x: f.view_copy(x, (-1,)),
    "matrix_power": lambda f, x: f.linalg.matrix_power(x[..., :3, :3], 0),
}


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("name", OTHERS)
def test_order_of_others_is_pytorchs(name, order):
    """Operations that once made results of their own order."""
    theirs, ours = (OTHERS[name](f, LAYOUTS[order](f, picture(f))) for f in (torch, flambeau))
    assert ours.shape == theirs.shape and strides(ours) == strides(theirs)


OF_IMAGES = {
    "adaptive_max_pool3d": (5, lambda f, x: f.nn.functional.adaptive_max_pool3d(x, 2)),
    "max_unpool2d": (4, lambda f, x: f.nn.functional.max_unpool2d(*f.nn.functional.max_pool2d(x, 2, return_indices=True), 2)),
    "cat": (4, lambda f, x: f.cat([x, x])),
    "stack": (4, lambda f, x: f.stack([x, x])),
    "stack of volumes": (5, lambda f, x: f.stack([x, x], 2)),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_images_and_volumes_with_channels_last(name):
    """Which operations keep the channels last."""
    dims, call = OF_IMAGES[name]
    found = []
    for f in (torch, flambeau):
        x = f.arange(2.0 * 3 * 4**3).reshape(2, 3, 4, 4, 4)
        x = x.contiguous(memory_format=f.channels_last_3d) if dims == 5 else x[..., 0].contiguous(memory_format=f.channels_last)
        result = call(f, x)
        found.append((strides(result), result.tolist()))
    assert found[1] == found[0]


FRESH = {
    "layer_norm": lambda f, x: f.nn.functional.layer_norm(x, x.shape[-2:]),
    "rms_norm": lambda f, x: f.nn.functional.rms_norm(x, x.shape[-2:]),
    "group_norm": lambda f, x: f.nn.functional.group_norm(x, 2),
    "group_norm of others": lambda f, x: f.nn.functional.group_norm(x.mT, 2),
    "grid_sample": lambda f, x: f.nn.functional.grid_sample(x, f.zeros(2, 3, 3, 2), align_corners=False),
    "affine_grid": lambda f, x: f.nn.functional.affine_grid(x[:, 0, :2, :3], (2, 1, 3, 3), align_corners=False),
    "multi_margin_loss": lambda f, x: f.nn.functional.multi_margin_loss(x[0, 0], f.zeros(4, dtype=f.int64), reduction="none"),
    "addmv": lambda f, x: f.addmv(x[0, 0, :, 0], x[0, 0], x[0, 0, 0]),
    "solve": lambda f, x: f.linalg.solve(x[0, 0, :4, :4] + f.eye(4), x[0, 0, 0, :4]),
    "kron": lambda f, x: f.kron(x[0, 0], x[0, 1]),
}


@pytest.mark.parametrize("name", FRESH)
def test_results_that_are_no_views(name):
    """What one operation computes may be cut off from its history in place, and has a node of that operation's name."""
    found = []
    for f in (torch, flambeau):
        result = FRESH[name](f, picture(f).requires_grad_())
        found.append((result._is_view(), result.grad_fn.name(), result.detach_().requires_grad))
    assert found[1] == found[0]


def test_edges_of_a_histogram_are_those_given():
    """histogramdd gives back the tensors of edges it was given."""
    for f in (torch, flambeau):
        edges = [f.tensor([0.0, 1.0, 2.0]), f.tensor([0.0, 2.0])]
        found = f.histogramdd(f.ones(3, 2), edges)
        assert all(a is b for a, b in zip(found.bin_edges, edges, strict=True))


@pytest.mark.parametrize("call", [
    lambda f, a: f.fft.irfft(a.mT), lambda f, a: f.fft.hfft(a.mT), lambda f, a: f.fft.irfft2(a.mT), lambda f, a: f.linalg.solve(a, a, left=False),
    lambda f, a: f.linalg.solve(a.mT, a, left=False),
])  # fmt: skip
def test_results_that_can_be_viewed(call):
    """As one row, although the input was transposed."""
    found = []
    for f in (torch, flambeau):
        result = call(f, (f.arange(48.0).reshape(3, 4, 4).sin() + 4 * f.eye(4)))
        found.append((result.is_contiguous(), result.view(-1).tolist()))
    assert found[1][0] == found[0][0]
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-4)


HEADS = {
    "plain": lambda f, x: x,
    "heads beside each other": lambda f, x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "samples beside each other": lambda f, x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "rows with gaps": lambda f, x: x[..., ::2],
    "turned": lambda f, x: x.mT.contiguous().mT,
    "three dimensions": lambda f, x: x[0].transpose(0, 1).contiguous().transpose(0, 1),
    "five dimensions": lambda f, x: x[:, None].transpose(0, 2).contiguous().transpose(0, 2),
}


@pytest.mark.parametrize("keys", HEADS)
@pytest.mark.parametrize("queries", HEADS)
def test_attention_lies_as_its_queries(queries, keys):
    """If rows are dense and there are four dimensions; else in row-major order."""
    found = []
    for f in (torch, flambeau):
        q, k = (HEADS[order](f, f.arange(1, 2 * 4 * 6 * 8 + 1).reshape(2, 4, 6, 8) / 400) for order in (queries, keys))
        if q.dim() != k.dim() or q.shape[-1] != k.shape[-1]:
            return
        results = [f.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=causal) for causal in (False, True, False)]
        found.append([strides(r) for r in results])
    assert found[1] == found[0]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[6, 3, 5], [6, 5, 3]])
def test_unpacked_sequences(lengths, batch_first):
    """Sequences that come out of a packed batch lie in memory as PyTorch's do: a dropout mask on them is the same."""

    def story(f):
        f.manual_seed(0)
        packed = f.nn.utils.rnn.pack_padded_sequence(f.ones(3, 6, 2), f.tensor(lengths), batch_first=True, enforce_sorted=False)
        padded, _ = f.nn.utils.rnn.pad_packed_sequence(packed, batch_first=batch_first, total_length=8)
        return strides(padded), f.nn.functional.dropout(padded, 0.5).tolist()

    assert story(flambeau) == story(torch)


EMPTY = {
    "embedding": lambda f: f.nn.functional.embedding(f.zeros(0, 2, dtype=f.int64), f.ones(3, 4)),
    "embedding of nothing": lambda f: f.nn.functional.embedding(f.tensor([1]), f.ones(3, 0)),
    "layer_norm": lambda f: f.nn.functional.layer_norm(f.ones(0, 2, 4), (4,)),
    "layer_norm with weights": lambda f: f.nn.functional.layer_norm(f.ones(0, 4), (4,), f.ones(4), f.ones(4)),
    "attention": lambda f: f.nn.functional.scaled_dot_product_attention(*[f.ones(0, 2, 4)] * 3),
    "index": lambda f: f.ones(3, 4)[f.zeros(0, dtype=f.int64)],
    "max_pool1d": lambda f: f.nn.functional.max_pool1d(f.ones(0, 2, 4), 2),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("recording", [True, False])
def test_short_ways_to_nothing(name, recording):
    """NumPy's own empty arrays have strides of 0."""
    with flambeau.set_grad_enabled(recording):
        found, wanted = EMPTY[name](flambeau), EMPTY[name](torch)
    assert found.shape == wanted.shape and found.stride() == wanted.stride()


def test_nothing_is_pooled():
    """Adaptive pooling to no places gives an empty result."""
    for f in (flambeau, torch):
        assert f.nn.functional.adaptive_max_pool2d(f.ones(2, 3, 4, 5), (0, 2)).shape == (2, 3, 0, 2)


def test_dimensions_one_by_one():
    """squeeze and count_nonzero take several dimensions as a tuple or one after the other."""
    for f in (flambeau, torch):
        assert f.ones(1, 1, 3).squeeze(0, 1).shape == f.ones(1, 1, 3).squeeze((0, 1)).shape == (3,)
        assert f.ones(2, 3).count_nonzero(0, 1).item() == 6


@pytest.mark.parametrize("order", [*LAYOUTS, "depthwise", "points"])
@pytest.mark.parametrize("format", ["contiguous_format", "channels_last", "preserve_format"])
def test_to_a_memory_format(order, format):
    """Which tensors to(memory_format=...) gives back as they are, and how it lays out the others, sizes of 1 included."""
    found = []
    for f in (torch, flambeau):
        images = {"depthwise": f.ones(4, 1, 3, 3), "points": f.ones(4, 3, 1, 1)}
        x = images[order] if order in images else LAYOUTS[order](f, picture(f))
        if format != "channels_last" or x.dim() == 4:
            result = x.to(memory_format=getattr(f, format))
            found.append((result.stride(), result is x))
    assert found[:1] == found[1:]


def _pool(f, x, kind, *args, **options):
    return getattr(f.nn.functional, f"{kind}{x.dim() - 2}d")(x, *args, **options)


def _resized(mode, size, **options):
    return lambda f, x: f.nn.functional.interpolate(x, size=(size,) * (x.dim() - 2), mode=mode, **options)


IN_KIND = {  # of images and volumes alike
    "group_norm": lambda f, x: f.nn.functional.group_norm(x, 2, f.ones(4), f.zeros(4)),
    "max_pool": lambda f, x: _pool(f, x, "max_pool", 2),
    "mean": lambda f, x: _pool(f, x, "adaptive_avg_pool", 1),
    "reflection pad": lambda f, x: f.nn.functional.pad(x, (1, 1) * (x.dim() - 2), mode="reflect"),
    "replication pad": lambda f, x: f.nn.functional.pad(x, (2, 1) * (x.dim() - 2), mode="replicate"),
    "channel_shuffle": lambda f, x: f.nn.functional.channel_shuffle(x, 2),
    "area": _resized("area", 3),
}
RESIZED_IMAGES = {
    "pixel_shuffle": lambda f, x: f.nn.functional.pixel_shuffle(x, 2),
    "nearest": _resized("nearest", 9),
    "nearest-exact": _resized("nearest-exact", 3),
    "bilinear": _resized("bilinear", 9),
    "bilinear, smooth": _resized("bilinear", 3, antialias=True),
}
RESIZED_VOLUMES = {"trilinear": _resized("trilinear", 3)}
FORWARD = {
    "bicubic": _resized("bicubic", 9),
    "lanczos": _resized("lanczos", 9, antialias=True),
}  # PyTorch's gradients of these are row-major


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", [*IN_KIND, *RESIZED_IMAGES, *RESIZED_VOLUMES, *FORWARD])
def test_channels_that_lie_last_stay_so(name, dims, cut):
    """A result, or a gradient, of an image or volume whose channels lie last is row-major, or the other way round; or has other values."""
    function = (IN_KIND | (RESIZED_IMAGES | FORWARD if dims == 2 else RESIZED_VOLUMES)).get(name)
    if function is None:
        pytest.skip("made for the other number of dimensions")
    found = []
    for f in (torch, flambeau):
        x = f.arange(2 * 4 * 8**dims).double().div(7).sin().reshape(2, 4, *(8,) * dims)
        x = x.float().contiguous(memory_format=f.channels_last if dims == 2 else f.channels_last_3d)
        x = (x[(..., *(slice(1, -1),) * dims)] if cut else x).requires_grad_()
        y = function(f, x)
        (grad,) = f.autograd.grad((y * y).sum(), x)
        found.append((y.stride(), None if name in FORWARD else grad.stride(), y.detach().numpy(), grad.numpy()))
    assert found[0][:2] == found[1][:2]
    for mine, other in zip(found[1][2:], found[0][2:], strict=True):
        assert abs(mine - other).max() < 1e-4


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_convolutions_lie_as_their_images(dims, transposed):
    """The gradients of a convolution of images that lie channels last, made to be differentiated again, are row-major."""
    found = []
    for f in (torch, flambeau):
        format = f.channels_last if dims == 2 else f.channels_last_3d
        x = f.ones(2, 4, *(5,) * dims).contiguous(memory_format=format).requires_grad_()
        w = f.ones(4, 4, *(3,) * dims, requires_grad=True)
        y = getattr(f, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")(x, w)
        grads = f.autograd.grad(y, (x, w), f.ones_like(y).requires_grad_(), create_graph=True)
        twice = f.autograd.grad(sum((g * g).sum() for g in grads), x)
        found.append([t.stride() for t in (y, *grads, *twice)])
    assert found[0] == found[1]


def test_one_volume_whose_channels_lie_last():
    """max_pool3d of a volume without a batch gives up its channels last."""
    found = []
    for f in (torch, flambeau):
        x = f.ones(1, 3, 4, 5, 6).contiguous(memory_format=f.channels_last_3d)[0].requires_grad_()
        y, places = f.nn.functional.max_pool3d(x, 2, return_indices=True)
        y.sum().backward()
        found.append((y.stride(), places.stride(), x.grad.sum().item()))
    assert found[0] == found[1]


@pytest.mark.parametrize("way", ["double", "to_copy", "resized", "clone"])
def test_sizes_of_one_keep_their_strides(way):
    """A conversion keeps the stride of a single sample, by which convolutions and resizing tell whether its channels lie last."""
    ways = {
        "double": lambda f, x: x.double(),
        "to_copy": lambda f, x: x.to("cpu", copy=True),
        "resized": lambda f, x: f.nn.functional.interpolate(x.double(), size=(4, 4), mode="bilinear"),
        "clone": lambda f, x: x.clone(),
    }
    single = [f.ones(1, 3, 6, 5).contiguous(memory_format=f.channels_last)[0][None] for f in (flambeau, torch)]
    column = [f.arange(6.0).reshape(1, 3, 2, 1).permute(0, 2, 1, 3) for f in (flambeau, torch)]
    for ours, theirs in (single, column):
        assert ours.stride() == theirs.stride()
        assert ways[way](flambeau, ours).stride() == ways[way](torch, theirs).stride()


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_of_one_column_keeps_channels_last(training):
    """Channels that lie last do so whatever the strides of sizes of 1 say."""
    for f in (flambeau, torch):
        x = f.arange(6.0).reshape(1, 3, 2, 1).permute(0, 2, 1, 3)
        out = f.nn.functional.batch_norm(x, f.zeros(2), f.ones(2), training=training)
        assert out.is_contiguous(memory_format=f.channels_last) and not out.is_contiguous()
