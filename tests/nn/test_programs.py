"""Programs as people write them, run with flambeau and with PyTorch from the same seed: the losses must agree, step by step.

They run in double precision, where two paths that part can not be put down to rounding: what differs is a mask, a draw, a rule.
"""

from __future__ import annotations

import copy
import math
import random
from collections import OrderedDict

from both import both


def program(run):
    """Make a test of a training program: double precision, one thread (models this small lose by more), the same seeds."""

    def doubled(torch):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        random.seed(0)
        try:
            return run(torch)
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_num_threads(threads)

    doubled.__name__, doubled.__doc__ = run.__name__, run.__doc__
    return both(doubled, tolerance=1e-7)


def train(optimizer, loss, steps):
    """The losses of some steps; `loss` computes one anew."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


# -- images ----------------------------------------------------------------------------------------------------------------


@program
def test_residual_network(torch):
    """A small ResNet: strides, shortcuts added in place, batch norm, label smoothing, momentum, steps of the rate, evaluation."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.shortcut = nn.Sequential()
            if stride != 1 or i != o:
                self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)), inplace=True)
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return F.relu(out)

    stem = [nn.Conv2d(3, 6, 7, 2, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    net = nn.Sequential(*stem, Block(6, 6, 1), Block(6, 12, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(12, 10))
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.constant_(m.weight, 1)
            nn.init.constant_(m.bias, 0)
    x, y = torch.randn(6, 3, 24, 24), torch.randint(0, 10, (6,))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[2, 4], gamma=0.1)
    story = []
    for _ in range(5):
        story += train(opt, lambda: F.cross_entropy(net.train()(x), y, label_smoothing=0.1), 1)
        sched.step()
        with torch.no_grad():
            story.append((net.eval()(x), sched.get_last_lr()))
    return story, str(net), dict(net.state_dict())


@program
def test_diffusion(torch):
    """A denoiser with a sinusoidal embedding of time, noise levels by gather, and sampling backwards in time."""
    nn, F, T = torch.nn, torch.nn.functional, 10
    betas = torch.linspace(1e-4, 0.02, T)
    kept = torch.cumprod(1 - betas, 0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))
            self.c1, self.norm, self.c2 = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Conv2d(8, 1, 3, padding=1)

        def forward(self, x, t):
            angles = t[:, None] * torch.exp(-math.log(1e4) * torch.arange(4) / 3)[None]
            e = self.time(torch.cat([angles.sin(), angles.cos()], -1))
            return self.c2(F.silu(self.norm(self.c1(x)) + e[:, :, None, None]))

    net, x0 = Net(), torch.randn(4, 1, 6, 6)

    def loss():
        t, noise = torch.randint(0, T, (4,)), torch.randn_like(x0)
        a = kept.gather(-1, t).reshape(-1, 1, 1, 1)
        return F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)

    losses, x = train(torch.optim.Adam(net.parameters(), lr=2e-3), loss, 6), torch.randn(2, 1, 6, 6)
    with torch.no_grad():
        for i in reversed(range(T)):
            x = (x - betas[i] / (1 - kept[i]).sqrt() * net(x, torch.full((2,), i))) / (1 - betas[i]).sqrt()
            x = x + (betas[i].sqrt() * torch.randn_like(x) if i else 0)
    return losses, x


@program
def test_two_networks_against_each_other(torch):
    """A GAN: transposed convolutions, weights by apply, two optimizers, fakes detached for the one and not for the other."""
    nn = torch.nn

    def weights(m):
        name = m.__class__.__name__
        if name.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif name.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    up = [nn.ConvTranspose2d(8, 6, 4, 1, 0, bias=False), nn.BatchNorm2d(6), nn.ReLU(True), nn.ConvTranspose2d(6, 1, 4, 2, 1, bias=False)]
    down = [nn.Conv2d(1, 6, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(6, 1, 4, bias=False), nn.Sigmoid()]
    G, D = nn.Sequential(*up, nn.Tanh()).apply(weights), nn.Sequential(*down).apply(weights)
    of_D, of_G = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (D, G))
    loss, story = nn.BCELoss(), []
    for _ in range(5):
        D.zero_grad()
        label = torch.full((4,), 1.0)
        real = loss(D(torch.rand(4, 1, 8, 8) * 2 - 1).view(-1), label)
        real.backward()
        fake = G(torch.randn(4, 8, 1, 1))
        label.fill_(0.0)
        false = loss(D(fake.detach()).view(-1), label)
        false.backward()
        of_D.step()
        G.zero_grad()
        label.fill_(1.0)
        fooled = loss(D(fake).view(-1), label)
        fooled.backward()
        of_G.step()
        story.append(((real + false).item(), fooled.item()))
    return story, fake


@program
def test_gradient_penalty(torch):
    """A critic under spectral norm whose gradient with respect to its input is part of its loss."""
    nn = torch.nn
    G = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 2))
    D = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 16)), nn.Softplus(), nn.Linear(16, 1))
    of_D, of_G = torch.optim.RMSprop(D.parameters(), lr=1e-3), torch.optim.RMSprop(G.parameters(), lr=1e-3)

    def critic():
        real, fake, alpha = torch.randn(8, 2) + 3, G(torch.randn(8, 4)).detach(), torch.rand(8, 1)
        between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        d = D(between)
        (grads,) = torch.autograd.grad(d, between, grad_outputs=torch.ones_like(d), create_graph=True, retain_graph=True)
        return D(fake).mean() - D(real).mean() + 10 * ((grads.norm(2, dim=1) - 1) ** 2).mean()

    story = []
    for _ in range(5):
        story += train(of_D, critic, 2)
        D.requires_grad_(False)
        story += train(of_G, lambda: -D(G(torch.randn(8, 4))).mean(), 1)
        D.requires_grad_(True)
    return story


@program
def test_variational_autoencoder(torch):
    """The reparameterised sample, binary cross entropy summed, the divergence from a normal."""
    nn, F = torch.nn, torch.nn.functional
    enc, mu_of, var_of = nn.Linear(16, 12), nn.Linear(12, 3), nn.Linear(12, 3)
    dec = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 16), nn.Sigmoid())
    model, x = nn.ModuleList([enc, mu_of, var_of, dec]), torch.rand(8, 4, 4)

    def loss():
        h = F.relu(enc(x.view(-1, 16)))
        mu, logvar = mu_of(h), var_of(h)
        std = torch.exp(0.5 * logvar)
        z = torch.randn_like(std).mul(std).add_(mu)
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return F.binary_cross_entropy(dec(z), x.view(-1, 16), reduction="sum") + kld

    return train(torch.optim.Adam(model.parameters(), lr=1e-3), loss, 10)


# -- sequences -------------------------------------------------------------------------------------------------------------


@program
def test_language_model_on_packed_sequences(torch):
    """Sequences of many lengths, packed out of order; dropout on embeddings, between layers, and on what is unpacked; clipped gradients."""
    nn, F, rnn = torch.nn, torch.nn.functional, torch.nn.utils.rnn
    embed, lstm, head = nn.Embedding(20, 8, padding_idx=0), nn.LSTM(8, 12, 2, dropout=0.2, batch_first=True), nn.Linear(12, 20)
    drop, model = nn.Dropout(0.2), nn.ModuleList([embed, lstm, head])
    for name, p in lstm.named_parameters():
        if "weight_hh" in name:
            nn.init.orthogonal_(p)
        elif "bias" in name:
            p.data[12:24].fill_(1.0)
    sequences = [torch.randint(1, 20, (n,)) for n in (9, 4, 7, 5)]
    ids, lengths = rnn.pad_sequence(sequences, batch_first=True), torch.tensor([len(s) - 1 for s in sequences])
    opt, story = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(8):
        model.zero_grad()
        packed = rnn.pack_padded_sequence(drop(embed(ids[:, :-1])), lengths, batch_first=True, enforce_sorted=False)
        out, (h, _) = lstm(packed)
        out, found = rnn.pad_packed_sequence(out, batch_first=True, total_length=8)
        loss = F.cross_entropy(head(drop(out)).view(-1, 20), ids[:, 1:].reshape(-1), ignore_index=0)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        opt.step()
        story.append((loss.item(), norm.item()))
    return story, h, found, embed.weight


@program
def test_teacher_forcing(torch):
    """A GRU that reads, a GRU cell with attention that writes, fed the truth or its own word by the toss of a coin."""
    nn, F = torch.nn, torch.nn.functional
    read, words, write = nn.GRU(6, 6, bidirectional=True), nn.Embedding(15, 6), nn.GRUCell(18, 6)
    bridge, align, out = nn.Linear(12, 6), nn.Linear(18, 6), nn.Linear(24, 15)
    v = nn.Parameter(torch.rand(6))
    model = nn.ModuleList([read, words, write, bridge, align, out])
    src, trg = torch.randint(0, 15, (7, 4)), torch.randint(0, 15, (6, 4))

    def loss():
        outputs = torch.zeros(6, 4, 15)
        states, hidden = read(words(src))
        hidden, token = torch.tanh(bridge(torch.cat((hidden[-2], hidden[-1]), dim=1))), trg[0]
        for t in range(1, 6):
            e = F.dropout(words(token), 0.1)
            energy = torch.tanh(align(torch.cat((hidden.unsqueeze(1).repeat(1, 7, 1), states.permute(1, 0, 2)), dim=2)))
            weights = F.softmax(torch.bmm(v.repeat(4, 1).unsqueeze(1), energy.permute(0, 2, 1)).squeeze(1), dim=1)
            seen = torch.bmm(weights.unsqueeze(1), states.permute(1, 0, 2)).squeeze(1)
            hidden = write(torch.cat((e, seen), dim=1), hidden)
            outputs[t] = out(torch.cat((hidden, seen, e), dim=1))
            token = trg[t] if random.random() < 0.5 else outputs[t].max(1)[1]
        return F.cross_entropy(outputs[1:].view(-1, 15), trg[1:].contiguous().view(-1))

    return train(torch.optim.Adam([*model.parameters(), v], lr=1e-2), loss, 6)


@program
def test_encoder_classifies(torch):
    """nn.TransformerEncoder over padded sequences with a class token, norm first, AMSGrad, a rate for each group of parameters."""
    nn, F = torch.nn, torch.nn.functional

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 3)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.randn(1, 13, 16) * 0.02)
            layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, num_layers=2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
            nn.init.trunc_normal_(self.cls, std=0.02)

        def forward(self, ids):
            pad = F.pad(ids == 0, (1, 0), value=False)
            x = torch.cat([self.cls.expand(ids.size(0), -1, -1), self.embed(ids)], dim=1) + self.pos
            return self.head(self.encoder(x, src_key_padding_mask=pad)[:, 0])

    model, ids, y = Classifier(), torch.randint(1, 40, (6, 12)), torch.randint(0, 3, (6,))
    ids[2, 8:] = 0
    ids[4, 3:] = 0
    flat = [p for p in model.parameters() if p.dim() < 2]
    deep = [p for p in model.parameters() if p.dim() > 1]
    opt = torch.optim.AdamW([{"params": deep, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}], lr=1e-2, amsgrad=True)
    sched, story = torch.optim.lr_scheduler.LambdaLR(opt, [lambda s: min(1.0, (s + 1) / 4), lambda s: 0.9**s]), []
    for _ in range(6):
        story += train(opt, lambda: F.cross_entropy(model(ids), y), 1)
        sched.step()
        story += sched.get_last_lr()
    with torch.no_grad():
        return story, model.eval()(ids)


@program
def test_transformer_translates(torch):
    """nn.Transformer with every mask, Xavier weights, Adam as in the paper."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.ModuleDict({"tr": nn.Transformer(12, 3, 1, 2, 20, 0.1, batch_first=True), "e": nn.Embedding(15, 12), "g": nn.Linear(12, 15)})
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    src, tgt = torch.randint(1, 15, (4, 7)), torch.randint(1, 15, (4, 6))
    src[1, 5:], tgt[1, 4:] = 0, 0
    mask = nn.Transformer.generate_square_subsequent_mask(5).bool()

    def loss():
        pads = {"src_key_padding_mask": src == 0, "tgt_key_padding_mask": tgt[:, :-1] == 0, "memory_key_padding_mask": src == 0}
        out = model.tr(model.e(src), model.e(tgt[:, :-1]), tgt_mask=mask, tgt_is_causal=True, **pads)
        return F.cross_entropy(model.g(out).transpose(1, 2), tgt[:, 1:], ignore_index=0)

    return train(torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9), loss, 6)


@program
def test_grouped_queries_with_a_cache(torch):
    """Rotary positions, fewer keys than queries, gated linear units; generation with a cache gives what the whole sequence gives."""
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self, d=16, heads=4, groups=2):
            super().__init__()
            self.heads, self.groups = heads, groups
            self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.k, self.v = (nn.Linear(d, groups * d // heads, bias=False) for _ in range(2))
            angles = torch.outer(torch.arange(20), 10000.0 ** -(torch.arange(0, d // heads, 2) * heads / d))
            self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles), persistent=False)

        def rotate(self, x, start):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * self.turn[start : start + x.size(1), None]).flatten(-2)

        def forward(self, x, cache=None):
            B, T, _ = x.shape
            q, k, v = (f(x).view(B, T, h, -1) for f, h in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups)))
            start = cache[0].size(1) if cache else 0
            q, k = self.rotate(q, start), self.rotate(k, start)
            if cache is not None:
                k, v = (torch.cat([old, new], 1) for old, new in zip(cache, (k, v), strict=True)) if cache else (k, v)
                cache[:] = k, v
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1, enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(B, T, -1))

    attn, norm = Attention(), nn.RMSNorm(16)
    up, gate, down = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False), nn.Linear(24, 16, bias=False)
    x, model = torch.randn(2, 8, 16), nn.ModuleList([attn, norm, up, gate, down])

    def loss():
        h = x + attn(norm(x))
        return (h + down(F.silu(gate(h)) * up(h)) - x.roll(1, 1)).pow(2).mean()

    losses = train(torch.optim.AdamW(model.parameters(), lr=1e-2), loss, 5)
    with torch.inference_mode():
        cache = []
        parts = torch.cat([attn(x[:, :5], cache), *(attn(x[:, i : i + 1], cache) for i in range(5, 8))], 1)
        return losses, parts, torch.allclose(parts, attn(x))


@program
def test_experts(torch):
    """A mixture of experts: the best two of four for each row, their answers added where they belong."""
    nn, F = torch.nn, torch.nn.functional
    gate, experts = (
        nn.Linear(8, 4, bias=False),
        nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(4)]),
    )
    x = torch.randn(20, 8)

    def loss():
        w, chosen = torch.topk(F.softmax(gate(x), -1), 2, dim=-1)
        w, out = w / w.sum(-1, keepdim=True), torch.zeros_like(x)
        for e, expert in enumerate(experts):
            row, column = torch.where(chosen == e)
            out.index_add_(0, row, expert(x[row]) * w[row, column, None])
        return F.l1_loss(out, x.flip(0))

    return train(torch.optim.Adam([*gate.parameters(), *experts.parameters()], lr=1e-2), loss, 6)


# -- gradients of gradients, and gradients of one's own --------------------------------------------------------------------


@program
def test_learning_to_learn(torch):
    """MAML: the outer loss is a function of weights that inner gradient steps made."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))

    def forward(x, w):
        return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])

    def loss():
        total = 0.0
        for _ in range(3):
            x, shift, w = torch.rand(10, 1) * 10 - 5, torch.rand(1) * math.pi, list(net.parameters())
            y = torch.sin(x + shift)
            for _ in range(2):
                grads = torch.autograd.grad(F.mse_loss(forward(x[:5], w), y[:5]), w, create_graph=True)
                w = [p - 0.1 * g for p, g in zip(w, grads, strict=True)]
            total = total + F.mse_loss(forward(x[5:], w), y[5:])
        return total / 3

    return train(torch.optim.Adam(net.parameters(), lr=1e-2), loss, 5)


@program
def test_differential_equation(torch):
    """A network that solves Burgers' equation: first and second derivatives by its inputs are in its loss."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1))
    x, t = torch.rand(20, 1, requires_grad=True), torch.rand(20, 1, requires_grad=True)

    def loss():
        u = net(torch.hstack([x, t]))
        (u_t,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
        (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        start = net(torch.hstack([x, torch.zeros_like(t)])) + torch.sin(math.pi * x)
        return (u_t + u * u_x - 0.01 / math.pi * u_xx).square().mean() + start.square().mean()

    return train(torch.optim.Adam(net.parameters(), lr=1e-3), loss, 4)


@program
def test_own_functions(torch):
    """Custom derivatives inside layers: a leaky relu with a mask, weights of one bit, gradients turned round for a rival."""
    nn, F = torch.nn, torch.nn.functional

    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, slope):
            ctx.save_for_backward(input)
            ctx.slope = slope
            return torch.where(input > 0, input, input * slope)

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            grad = grad_output.clone()
            grad[input < 0] *= ctx.slope
            return grad, None

    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            return F.hardtanh(grad)

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.strength, None

    class OneBit(nn.Linear):
        def forward(self, x):
            return F.linear(x, Sign.apply(self.weight), self.bias)

    body, head, rival = OneBit(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    x, y, domain = torch.randn(20, 6), torch.randint(0, 3, (20,)), torch.randint(0, 2, (20,))

    def loss():
        z = Leaky.apply(body(x), 0.1)
        return F.cross_entropy(head(z), y) + F.cross_entropy(rival(Reverse.apply(z, 0.5)), domain)

    params = [*body.parameters(), *head.parameters(), *rival.parameters()]
    return train(torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.1), loss, 8)


# -- modules taken apart and put together ----------------------------------------------------------------------------------


@program
def test_parametrized_weights(torch):
    """Weight norm, symmetric and orthogonal weights train, are saved under their names, and become plain again."""
    nn, F = torch.nn, torch.nn.functional
    parametrize = nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, X):
            return X.triu() + X.triu(1).transpose(-1, -2)

        def right_inverse(self, A):
            return A.triu()

    first, second, third = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6), dim=0), nn.Linear(6, 6), nn.Linear(6, 6)
    parametrize.register_parametrization(second, "weight", Symmetric())
    nn.utils.parametrizations.orthogonal(third)
    net, x, y = nn.Sequential(first, nn.Mish(), second, third), torch.randn(10, 6), torch.randn(10, 6)
    losses, names = train(torch.optim.RAdam(net.parameters(), lr=1e-2), lambda: F.huber_loss(net(x), y), 8), list(net.state_dict())
    parametrize.remove_parametrizations(second, "weight")
    flat = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(flat * 0.5, net.parameters())
    return losses, names, net(x), str(net), torch.allclose(third.weight @ third.weight.T, torch.eye(6))


@program
def test_averages_of_a_model(torch):
    """Exponential and stochastic averages of weights, by the library and by hand; batch norm brought up to date; an annealed rate."""
    nn, F, swa_utils, schedulers = torch.nn, torch.nn.functional, torch.optim.swa_utils, torch.optim.lr_scheduler
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    ema = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    swa, hand, x, y = swa_utils.AveragedModel(model), copy.deepcopy(model).eval(), torch.randn(40, 5), torch.randint(0, 2, (40,))
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    cosine, anneal, story = schedulers.CosineAnnealingLR(opt, T_max=20), swa_utils.SWALR(opt, swa_lr=0.05, anneal_epochs=3), []
    for epoch in range(6):
        for xb, yb in zip(x.split(8), y.split(8), strict=True):
            story += train(opt, lambda xb=xb, yb=yb: F.cross_entropy(model(xb), yb), 1)
            ema.update_parameters(model)
            with torch.no_grad():
                for average, p in zip(hand.parameters(), model.parameters(), strict=True):
                    average.lerp_(p, 0.1)
        if epoch > 2:
            swa.update_parameters(model)
        (anneal if epoch > 2 else cosine).step()
        story.append(opt.param_groups[0]["lr"])
    swa_utils.update_bn([[xb] for xb in x.split(8)], swa)
    return story, swa.eval()(x), ema.eval()(x), hand(x), swa.n_averaged


@program
def test_fine_tuning(torch):
    """A frozen body with batch norm in evaluation, a new head; later a layer thaws and joins the optimizer with its own rate."""
    nn, F = torch.nn, torch.nn.functional
    layers = [("conv", nn.Conv2d(3, 4, 3)), ("bn", nn.BatchNorm2d(4)), ("relu", nn.ReLU()), ("pool", nn.AdaptiveAvgPool2d(2))]
    model = nn.Sequential(OrderedDict([*layers, ("flat", nn.Flatten()), ("fc", nn.Linear(16, 7))]))
    x, y = torch.randn(10, 3, 8, 8), torch.randint(0, 2, (10,))
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith("fc")
    model.fc = nn.Linear(model.fc.in_features, 2)
    opt, story = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.05, momentum=0.9), []
    for epoch in range(5):
        model.train()
        model.bn.eval()
        story += train(opt, lambda: F.cross_entropy(model(x), y), 1)
        if epoch == 2:
            opt.add_param_group({"params": model.conv.requires_grad_(True).parameters(), "lr": 0.005})
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    return story, names, model.bn.running_mean, model.conv.weight.grad, model.bn.weight.grad is None, [g["lr"] for g in opt.param_groups]


@program
def test_adapters_are_put_into_a_model(torch):
    """LoRA: every Linear of a tree is replaced by itself, frozen, plus a product of two thin matrices."""
    nn = torch.nn

    class Adapted(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.A, self.B = nn.Parameter(torch.empty(rank, base.in_features)), nn.Parameter(torch.zeros(base.out_features, rank))
            nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

        def forward(self, x):
            return self.base(x) + x @ self.A.T @ self.B.T

    def inject(module):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Adapted(child))
            else:
                inject(child)

    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()), nn.Linear(8, 1)), torch.randn(12, 6)
    inject(model)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, foreach=True)
    return train(opt, lambda: (model(x).squeeze(-1) - x.sum(-1)).abs().mean(), 6), str(model), dict(model.state_dict())


@program
def test_routing(torch):
    """ModuleDict, ParameterDict, ParameterList and buffers in one module; deep copies are apart; an optimizer's state moves over."""
    nn = torch.nn

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.tasks = nn.ModuleDict([["a", nn.Linear(4, 2)], ["b", nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))]])
            self.acts = nn.ModuleDict({"relu": nn.ReLU(), "leaky": nn.LeakyReLU()})
            self.scales = nn.ParameterDict({"scale": nn.Parameter(torch.ones(2)), "shift": nn.Parameter(torch.zeros(2))})
            self.extra = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(2)])
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.register_buffer("nothing", None)
            self.register_parameter("bias", None)

        def forward(self, x, task, act):
            self.calls += 1
            return self.acts[act](self.tasks[task](x)) * self.scales["scale"] + self.scales["shift"] + sum(self.extra)

    model, x, story = Router(), torch.randn(6, 4), []
    opt = torch.optim.ASGD(model.parameters(), lr=0.01)
    for i in range(6):
        story += train(opt, lambda i=i: model(x, "ab"[i % 2], "leaky" if i % 3 else "relu").pow(2).mean(), 1)
    twin = copy.deepcopy(model)
    twin.tasks.a.weight.data.zero_()
    other = torch.optim.ASGD(twin.parameters(), lr=0.5)
    other.load_state_dict(opt.state_dict())
    model.tasks["c"] = nn.Identity()
    del model.tasks["b"]
    kept = model.tasks.a.weight.abs().sum().item()
    names = [name for name, _ in model.named_modules()]
    return story, str(model), dict(model.state_dict()), kept, names, other.param_groups[0]["lr"], len(other.state)
