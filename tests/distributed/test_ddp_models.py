"""DistributedDataParallel around models that are not plain: several at once, shared, complex, frozen, changed after wrapping, in mixed precision."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = '''
from TORCH.nn.parallel.distributed import _MixedPrecision

OURS = torch.__name__ == "flambeau"  # PyTorch waits for ever where models differ, and has mixed precision on GPUs alone


def step(m, number=0, forward=None):
    m.zero_grad()
    x, y = batch(number)
    loss = F.mse_loss((forward or m)(mine(x)), mine(y))
    loss.backward()
    return [round(loss.item(), 5), *grads(m)]


def steps(m, count=3, lr=0.1):
    optimizer, found = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=lr), []
    for number in range(count):
        found += step(m, number)
        optimizer.step()
    return [*found, everyone(m)]


def case_two_models():
    """One after the other, in one loss."""
    a, b = DDP(model()), DDP(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    found = []
    for number in range(3):
        a.zero_grad(), b.zero_grad()
        x, y = batch(number)
        F.mse_loss(b(a(mine(x))), mine(y)).backward()
        found += [*grads(a), *grads(b)]
    return [*found, everyone(a), everyone(b)]


def case_two_models_in_turn():
    """As a generator and a discriminator: each is trained through the other."""
    torch.manual_seed(4)
    g, d = DDP(nn.Linear(6, 3)), DDP(nn.Linear(3, 1))
    og, od = torch.optim.SGD(g.parameters(), lr=0.1), torch.optim.SGD(d.parameters(), lr=0.1)
    found = []
    for number in range(3):
        x, y = batch(number)
        od.zero_grad()
        (d(g(mine(x)).detach()).mean() - d(mine(y)).mean()).backward()
        found += grads(d)
        od.step()
        og.zero_grad()
        d.requires_grad_(False)
        d.module(g(mine(x))).mean().neg().backward()
        d.requires_grad_(True)
        found += grads(g)
        og.step()
    return [*found, everyone(g)]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def case_tied(): return steps(DDP(Tied()))
def case_tied_static(): return steps(DDP(Tied(), static_graph=True))
def case_tied_views(): return steps(DDP(Tied(), gradient_as_bucket_view=True))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.w = nn.Parameter(torch.randn(6, 3, dtype=torch.complex64))
        self.b = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.w).abs() + self.b


def case_complex():
    m = DDP(Complex())
    found = []
    for number in range(2):
        m.zero_grad()
        x, y = batch(number)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        g = m.module.w.grad
        found += [str(g.dtype), round(float(g.real.sum()), 5), round(float(g.imag.sum()), 5), round(float(m.module.b.grad.sum()), 5)]
    return found


def case_double_wrap():
    inner = DDP(model())
    return steps(DDP(inner))


def case_frozen_after_wrapping():
    """What was frozen after wrapping gets no gradient: it counts as unused."""
    m = quiet(lambda: DDP(model(), find_unused_parameters=True))
    m.module[2].weight.requires_grad_(False)
    return quiet(lambda: [step(m), step(m, 1)])


def case_frozen_after_wrapping_unasked():
    m = DDP(model())
    m.module[2].weight.requires_grad_(False)
    step(m)
    return [error_of(lambda: step(m, 1))[0]]


def case_thawed_after_wrapping():
    """What was frozen when the model was wrapped is not averaged later on."""
    m = model()
    m[0].requires_grad_(False)
    m = DDP(m)
    m.module[0].requires_grad_(True)
    return step(m)


def case_added_after_wrapping():
    m = DDP(model())
    m.module.extra = nn.Linear(3, 3)
    with torch.no_grad():
        m.module.extra.weight.fill_(0.5), m.module.extra.bias.zero_()
    return step(m)


def case_data_types():
    """Buckets for each dtype."""
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6).double(), nn.Linear(6, 3)

        def forward(self, x):
            return self.c(self.b(self.a(x).double()).float())
    m = DDP(Both(), bucket_cap_mb=0.0001)
    return [*step(m), *step(m, 1), [str(p.grad.dtype) for p in m.parameters()]]


def case_half():
    m = DDP(model().bfloat16())
    x, y = batch(0)
    F.mse_loss(m(mine(x).bfloat16()), mine(y).bfloat16()).backward()
    return [[str(p.grad.dtype) for p in m.parameters()], everyone(m)]


def case_scalar_and_empty():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.s, self.e, self.w = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.empty(0, 4)), nn.Parameter(torch.ones(6, 3))

        def forward(self, x):
            return x @ self.w * self.s + self.e.sum()
    m = DDP(Odd())
    found = []
    for number in range(2):
        m.zero_grad()
        x, y = batch(number)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        found += [round(float(m.module.s.grad), 5), list(m.module.s.grad.shape), list(m.module.e.grad.shape), round(float(m.module.w.grad.sum()), 5)]
    return found


def case_channels_last():
    """Gradients lie in memory as their parameters do."""
    torch.manual_seed(3)
    m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).to(memory_format=torch.channels_last)
    m = DDP(m, gradient_as_bucket_view=True)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    found = []
    for number in range(2):
        m.zero_grad()
        m(mine(x).contiguous(memory_format=torch.channels_last)).pow(2).mean().backward()
        found += [*grads(m), [p.grad.stride() == p.stride() for p in m.parameters()]]
    return [*found, everyone(m)]


def case_gradients_are_views():
    m = DDP(model(), gradient_as_bucket_view=True)
    step(m), step(m, 1)
    first = [p.grad.data_ptr() for p in m.parameters()]
    x, y = batch(2)
    m.zero_grad(set_to_none=False)
    F.mse_loss(m(mine(x)), mine(y)).backward()
    whole = {p.grad.untyped_storage().data_ptr() for p in m.parameters()}
    return [first == [p.grad.data_ptr() for p in m.parameters()], len(whole)]


def case_detach_of_views():
    m = DDP(model(), gradient_as_bucket_view=True)
    step(m)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=False)
    return grads(m)


def case_retained_graph():
    m = DDP(model())
    x, y = batch(0)
    loss = F.mse_loss(m(mine(x)), mine(y))
    loss.backward(retain_graph=True)
    first = grads(m)
    loss.backward()
    return [first, grads(m)]


def case_no_grad_forward_between():
    m = DDP(model())
    found = step(m)
    with torch.no_grad():
        m(batch(3)[0])
    m.eval()
    m(batch(3)[0])
    m.train()
    return [*found, *step(m, 1)]


def case_eval_forward_and_its_backward():
    m = DDP(model())
    m.eval()
    return [*step(m), everyone(m)]


def case_gradient_accumulation():
    m = DDP(model())
    optimizer, found = torch.optim.SGD(m.parameters(), lr=0.1), []
    for number in range(6):
        x, y = batch(number)
        from contextlib import nullcontext
        last = number % 3 == 2
        with nullcontext() if last else m.no_sync():
            (F.mse_loss(m(mine(x)), mine(y)) / 3).backward()
        if last:
            found += grads(m)
            optimizer.step()
            optimizer.zero_grad()
    return [*found, *params(m)]


def case_no_sync_whole_epoch():
    m = DDP(model())
    with m.no_sync():
        found = step(m)
    return [*found, m.require_backward_grad_sync]


def case_forward_outside_no_sync():
    """It is where forward runs that counts."""
    m = DDP(model())
    x, y = batch(0)
    loss = F.mse_loss(m(mine(x)), mine(y))
    with m.no_sync():
        loss.backward()
    return [everyone(m), *grads(m)]


def case_kwargs_and_none():
    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a = nn.Linear(6, 3)

        def forward(self, x, *, scale=None, names=()):
            return {"y": self.a(x) * (scale if scale is not None else 1), "n": None, "names": names}
    m = DDP(Keyed())
    return step(m, forward=lambda x: m(x, scale=torch.tensor(2.0), names=["a"])["y"])


def case_many_steps_with_momentum():
    m = DDP(model(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    for number in range(20):
        step(m, number)
        optimizer.step()
    return [*params(m), agree(list(m.parameters()))]


def case_clipping():
    m = DDP(model())
    found = step(m)
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    return [*found, round(float(norm), 5), *grads(m)]


def case_second_derivative_inside():
    """A penalty on the gradient of the inputs: autograd.grad inside of the loss."""
    m = DDP(model())
    x, y = batch(0)
    x = mine(x).requires_grad_()
    out = m(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (F.mse_loss(out, mine(y)) + g.pow(2).sum()).backward()
    return [*grads(m), everyone(m)]


def case_functional_call():
    m = DDP(model())
    changed = {name: p.detach() * 2 for name, p in m.named_parameters()}
    out = torch.func.functional_call(m, changed, (batch(0)[0],))
    return [round(float(out.sum()), 4)]


def case_apply_and_to():
    m = DDP(model())
    m.apply(lambda inner: inner.weight.data.fill_(0.1) if isinstance(inner, nn.Linear) else None)
    return step(m)


def case_parametrized():
    m = model()
    nn.utils.parametrizations.weight_norm(m[0])
    return steps(DDP(m), 2)


def case_dropout():
    """Each rank has its own stream of random numbers."""
    torch.manual_seed(10 + rank)
    m = DDP(nn.Sequential(*model()[:2], nn.Dropout(0.5), *list(model())[2:]))
    torch.manual_seed(20 + rank)
    return steps(m, 2)


def case_rnn():
    torch.manual_seed(3)
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 5, 2, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cell(x[:, None].expand(-1, 3, -1))[0][:, -1])
    return steps(DDP(Recurrent()))


# ---- mixed precision ----

def mixed(dtype, **options):
    """Against a float32 copy of the model, rounded by hand where mixed precision rounds: (dtypes, closeness, agreement)."""
    if not OURS:
        return []
    m, exact = DDP(model(), mixed_precision=_MixedPrecision(**options)), DDP(model())
    answers = []
    for number in range(2):
        x, y = batch(number)
        for one in (m, exact):
            one.zero_grad()
            out = one(mine(x))
            F.mse_loss(out.float(), mine(y)).backward()
            answers += [out.dtype is (dtype if one is m else torch.float32)]
        pairs = list(zip(m.parameters(), exact.parameters()))
        answers += [p.dtype is torch.float32 and p.grad.dtype is torch.float32 for p, _ in pairs]
        errors = [float((p.grad - q.grad).abs().max() / q.grad.abs().max()) for p, q in pairs]
        answers += [0 < max(errors) < 0.1, everyone(m)]
    return answers


def case_mixed_bf16(): return mixed(torch.bfloat16, param_dtype=torch.bfloat16)
def case_mixed_bf16_reduced(): return mixed(torch.bfloat16, param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
def case_mixed_sent_in_float32(): return mixed(torch.bfloat16, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
def case_mixed_on_the_way_only(): return mixed(torch.float32, reduce_dtype=torch.bfloat16)
def case_mixed_buffers():
    m = DDP(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), mixed_precision=_MixedPrecision(buffer_dtype=torch.float64)) if OURS else None
    return [b.dtype is torch.float64 for b in m.buffers() if b.is_floating_point()] if OURS else []


def case_autocast():
    found = []
    m = DDP(model())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x, y = batch(0)
        out = m(mine(x))
        found.append(str(out.dtype))
        loss = F.mse_loss(out, mine(y).to(out.dtype))
    loss.backward()
    return [*found, [str(p.grad.dtype) for p in m.parameters()], [round(g, 2) for g in grads(m)], everyone(m)]


# ---- what is refused ----

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body, self.left, self.right = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x, use="left"):
        return getattr(self, use)(torch.tanh(self.body(x)))


def case_unused_is_an_error():
    m = DDP(Heads())
    step(m)
    kind, text = error_of(lambda: step(m, 1))
    return [kind, "finished reduction in the prior iteration" in text, *sorted({n for n in ("right.weight", "right.bias", "left.weight") if n in text})
            ] if OURS else [kind, "finished reduction in the prior iteration" in text, "right.bias", "right.weight"]


def case_different_models():
    """Both ranks are told what each has."""
    if not OURS:
        return []
    answers = []
    for make, words in ((lambda: nn.Linear(3 + rank, 2), ["weight", "rank 0", "(2, 3)", "rank 1", "(2, 4)"]),
                        (lambda: nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + rank)]), ["2 parameters", "4 parameters", "1.weight"])):
        kind, text = error_of(lambda: DDP(make()))
        answers += [kind == "RuntimeError", *[word in text for word in words]]
    return answers


def case_devices():
    kinds = [error_of(lambda: DDP(model(), device_ids=[0])), error_of(lambda: DDP(model(), device_ids=[0, 1])),
             error_of(lambda: DDP(model(), output_device=0)), error_of(lambda: DDP(model(), device_ids=[])),
             error_of(lambda: DDP(model(), device_ids=[torch.device("cpu")]))]
    m = model()
    m[0].to("meta")
    return [*[kind for kind, _ in kinds], error_of(lambda: DDP(m))[0]]


def case_nothing_to_train():
    m = model().requires_grad_(False)
    return [error_of(lambda: DDP(m))[0], error_of(lambda: DDP(nn.ReLU()))[0], error_of(lambda: DDP(torch.ones(3)))[0]]


def case_arguments():
    return [error_of(lambda: DDP(model(), process_group=dist.group.WORLD, device_mesh=3))[0], error_of(lambda: DDP(model(), bucket_cap_mb=-1))[0]]


def case_names():
    m = DDP(model())
    return [list(m.state_dict()), [name for name, _ in m.named_parameters()], [name for name, _ in m.named_modules()], repr(m),
            error_of(lambda: m.load_state_dict(model().state_dict()))[0], [str(k) for k in m.module.load_state_dict(model().state_dict())],
            hasattr(m, "no_such"), m.training]


def case_data_parallel():
    """Without GPUs it is the module itself."""
    m = nn.DataParallel(model())
    x, y = batch(0)
    F.mse_loss(m(x), y).backward()
    return [*grads(m), m.device_ids, list(m.state_dict())[:2], repr(nn.DataParallel(nn.ReLU()))]


# ---- buffers, and logging ----

def case_buffer_hooks():
    from TORCH.nn.parallel.distributed import _BufferCommHookLocation as Location
    torch.manual_seed(2)
    found = []
    for place in Location:
        seen = []
        m = DDP(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
        def hook(state, buffers):
            state.append(sorted(buffers))
        m._register_buffer_comm_hook(seen, hook, place)
        step(m), step(m, 1)
        found += [place.name, seen]
    return found


def case_buffers_replaced():
    """A buffer that is another tensor in every pass."""
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a = nn.Linear(6, 3)
            self.register_buffer("seen", torch.tensor(0.0))

        def forward(self, x):
            self.seen = self.seen + 1 + rank
            return self.a(x)
    m = DDP(Counting())
    return [*step(m), *step(m, 1), float(m.module.seen)]


def case_no_init_sync():
    m = model()
    if rank:
        with torch.no_grad():
            for p in m.parameters():
                p.zero_()
    m = DDP(m, init_sync=False)
    return params(m)


def case_logging():
    m = DDP(model(), bucket_cap_mb=0.0005)
    for number in range(3):
        step(m, number)
    data = m._get_ddp_logging_data()
    first = DDP(nn.Linear(2, 2), static_graph=True)._get_ddp_logging_data()
    return [data["iteration"] >= 2, data["has_rebuilt_buckets"], data["avg_backward_comm_time"] > 0, "comm_hook" in data, data["find_unused_parameters"],
            data["gradient_as_bucket_view"], "static_graph" in data, data["unused_parameter_size"], data["is_multi_device_module"], data["bucket_sizes"],
            data["backward_comm_time_end"] > data["backward_comm_time_start"], data["forward_compute_time"] > 0,
            first["has_sync_bn"], first["static_graph"], "rebuilt_bucket_sizes" in first]
'''
OURS = ["different_models", *[name for name in names(PROGRAM) if name.startswith("mixed")]]


@pytest.mark.parametrize("name", [name for name in names(PROGRAM) if name not in OURS])
def test_as_pytorch(name: str) -> None:
    """Gradients or errors of such a model under DistributedDataParallel are not PyTorch's."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])


@pytest.mark.parametrize("name", OURS)
def test_ours(name: str) -> None:
    """What PyTorch cannot do on the CPU is not done as it says here."""
    for ours in cases(PROGRAM):
        assert ours[name] and all(answer is True for answer in ours[name]), ours[name]
