"""The mistakes that cost people days, and what the user sees of each: the words that name the mistake and the way out.

Numbers are those of the lists of common pitfalls that introductions to PyTorch have. A mistake that raises nothing in PyTorch raises nothing here: where
it is one for certain there is a warning, and a test that programs which are right get none; where it might be meant, `prof.explain()`, `summary`
or `viz.gradients` shows it to who asks.
"""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest

import flambeau as torch
import flambeau.distributed as distributed
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.profiler import profile
from flambeau.utils.data import DataLoader, Dataset, TensorDataset
from flambeau.utils.data.distributed import DistributedSampler


def refused(call, error=RuntimeError) -> str:
    """What an exception tells the user, its notes included."""
    with pytest.raises(error) as found:
        call()
    return "\n".join([str(found.value), *getattr(found.value, "__notes__", [])])


def warned(call) -> list[str]:
    """The warnings of a program, each of which has to be about a line of this file."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(w.filename == __file__ for w in found), [w.filename for w in found]
    return [str(w.message) for w in found]


def advised(call) -> str:
    """What `prof.explain()` says about a program."""
    with profile() as prof:
        call()
    return str(prof.explain())


def advised_of(words: tuple[str, ...], call, tries: int = 5) -> bool:
    """Whether explain() has all these words. For advice that depends on times: what else runs on the machine may hide it once, but not always."""
    return any(all(word in told for word in words) for told in (advised(call) for _ in range(tries)))


def classifier(drop: float = 0.2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(drop), nn.Linear(16, 4))


X, Y = torch.randn(32, 8, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 4


def step(model, optimizer) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(X), Y)
    loss.backward()
    optimizer.step()
    return loss.item()


# -- 1: forgetting optimizer.zero_grad() -----------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [False, True])
def test_01_forgotten_zero_grad(clip):
    """A loop without zero_grad is told so, once, at its second step, whether it clips or not."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program():
        for _ in range(4):
            F.cross_entropy(model(X), Y).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    (words,) = warned(program)
    assert "never set to zero" in words and "Call optimizer.zero_grad() before loss.backward()" in words


def test_01_forgotten_zero_grad_of_a_sparse_gradient():
    """Rows of a table that were read add up, too; and in a loop that zeroes them nothing is said."""
    for zeroing, expected in ((False, 1), (True, 0)):
        table = nn.Embedding(10, 3, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

        def program(table=table, optimizer=optimizer, zeroing=zeroing):
            for _ in range(3):
                if zeroing:
                    optimizer.zero_grad()
                table(torch.tensor([1, 2, 1])).sum().backward()
                optimizer.step()

        assert len(warned(program)) == expected


def test_01_forgotten_zero_grad_with_a_scaler():
    """Unscaling writes to the gradients in between, and hides nothing."""
    model, scaler = classifier(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def program():
        for _ in range(3):
            scaler.scale(F.cross_entropy(model(X), Y)).backward()
            scaler.step(optimizer)
            scaler.update()

    assert len(warned(program)) == 1


ZEROING = {
    "the optimizer's": lambda model, optimizer: optimizer.zero_grad(),
    "to zeros": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "the model's": lambda model, optimizer: model.zero_grad(),
    "by hand": lambda model, optimizer: [p.grad.zero_() for p in model.parameters() if p.grad is not None],
    "by hand, the old way": lambda model, optimizer: [p.grad.data.zero_() for p in model.parameters() if p.grad is not None],
    "momentum by hand": lambda model, optimizer: [p.grad.mul_(0.9) for p in model.parameters() if p.grad is not None],
}


@pytest.mark.parametrize("way", ZEROING)
def test_01_programs_that_do_not_forget(way):
    """Whatever way gradients are zeroed, before backward or after the step, accumulated over batches or not: nothing is said."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def program():
        for i in range(6):
            if i % 2 == 0:
                ZEROING[way](model, optimizer)
            (F.cross_entropy(model(X), Y) / 2).backward()
            if i % 2:
                optimizer.step()
                optimizer.step()  # twice with the same gradients is odd, but not forgotten

    assert warned(program) == []


@pytest.mark.parametrize("to_none", [True, False])
def test_01_two_networks_against_each_other(to_none):
    """The generator's backward adds to the discriminator's gradients, which are zeroed before they are used: nothing is said."""
    critic, artist = nn.Linear(4, 1), nn.Linear(2, 4)
    of_critic, of_artist = (torch.optim.Adam(m.parameters(), lr=1e-3) for m in (critic, artist))

    def program():
        for _ in range(4):
            fake = artist(torch.randn(8, 2))
            of_critic.zero_grad(set_to_none=to_none)
            (critic(torch.randn(8, 4)).mean() - critic(fake.detach()).mean()).backward()
            of_critic.step()
            of_artist.zero_grad(set_to_none=to_none)
            critic(fake).mean().backward()
            of_artist.step()

    assert warned(program) == []


# -- 2: mixing devices -----------------------------------------------------------------------------------------------------


class Buggy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.scale = torch.full((6,), 0.1)

    def forward(self, x):
        return self.fc(x) * self.scale


class Literal(nn.Module):
    def forward(self, x):
        return x + torch.zeros(6)


def test_02_mixing_devices():
    """The message names both devices; the note names the attribute that stayed behind and register_buffer, or the literal in forward."""
    x = torch.randn(2, 6, device="meta")
    told = refused(lambda: nn.Sequential(Buggy()).to("meta")(x))
    assert "Expected all tensors to be on the same device" in told and "meta and cpu" in told
    assert "in 0: Buggy" in told and "scale is a plain attribute" in told and "self.register_buffer('scale', ...)" in told
    told = refused(lambda: Literal()(x))
    assert "device=x.device" in told and "register_buffer" in told
    told = refused(lambda: nn.Linear(6, 6)(x))
    assert "model.to(device)" in told and "plain attribute" not in told


# -- 3, 19 and "validation accuracy worse than training": modes ------------------------------------------------------------------


def test_03_forgotten_eval():
    """Dropout and batch norm that run in training mode under no_grad are named, with their line, and so is model.eval()."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def validate():
        with torch.no_grad():
            return (model(X).argmax(1) == Y).float().mean()

    told = advised(lambda: [(step(model, optimizer), validate()) for _ in range(3)])
    assert "dropout ran in training mode 3 times under no_grad (test_pitfalls.py:" in told and "in validate" in told
    assert "batch_norm ran in training mode" in told and "model.eval()" in told
    told = advised(lambda: [(step(model, optimizer), model.eval(), validate(), model.train()) for _ in range(3)])
    assert "training mode" not in told and "evaluation mode" not in told


def test_03_forgotten_no_grad():
    """A validation that records what no backward uses is pointed at."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def validate():
        return F.cross_entropy(model(X), Y).item()

    told = advised(lambda: [(step(model, optimizer), model.eval(), validate(), model.train()) for _ in range(5)])
    assert (
        "operations of forward were recorded for a backward that never came" in told
        and "with torch.no_grad():" in told
        and "in validate" in told
    )
    assert "never came" not in advised(lambda: [step(model, optimizer) for _ in range(5)])


def test_04_forgotten_train():
    """Steps after an eval() that nobody took back are a warning, and a sentence of explain(); a model that has no modes gets none."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    model.eval()
    (words,) = warned(lambda: [step(model, optimizer) for _ in range(2)])
    assert "Sequential was in training mode" in words and "1 (BatchNorm1d)" in words and "Call model.train()" in words
    told = advised(lambda: [step(model, optimizer) for _ in range(2)])
    assert "dropout ran in evaluation mode" in told and "model.train() is missing" in told
    plain = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    assert warned(lambda: (step(plain, optimizer), plain.eval(), step(plain, optimizer))) == []


def test_04_evaluation_mode_from_the_beginning_is_meant():
    """Fine-tuning with frozen statistics, and validation between steps: nothing is said."""
    model = classifier().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert warned(lambda: [step(model, optimizer) for _ in range(2)]) == []
    model.train()
    assert warned(lambda: [(model.train(), step(model, optimizer), model.eval(), model(X)) for _ in range(2)]) == []


def test_19_validation_loss_in_training_mode():
    """The same as 3, for the loss: dropout makes it differ from call to call, and explain() says why."""
    model = classifier()
    with torch.inference_mode():
        assert len({F.cross_entropy(model(X), Y).item() for _ in range(3)}) == 3

    def validate():
        with torch.inference_mode():
            return F.cross_entropy(model(X), Y).item()

    assert "dropout ran in training mode" in advised(validate)


# -- 5 to 9 ----------------------------------------------------------------------------------------------------------------


def test_05_copies_are_not_learnable():
    """A detached copy is refused as a parameter, with the cure; an optimizer of nothing but such copies says that it moves nothing."""
    layer = nn.Linear(2, 2)
    copy = layer.weight.detach().clone()
    told = refused(lambda: setattr(layer, "weight", copy), TypeError)
    assert "cannot assign" in told and "torch.nn.Parameter(tensor)" in told
    (words,) = warned(lambda: [torch.optim.SGD([copy], lr=0.1).step()])
    assert "none of the 1 tensors" in words and "nn.Parameter" in words
    layer.requires_grad_(False)
    assert torch.viz.gradients(layer)["weight"].remark == "frozen"
    optimizer = torch.optim.SGD([copy, nn.Parameter(copy)], lr=0.1)
    assert warned(optimizer.step) == []  # a first step without gradients, before a schedule begins


def test_06_tensors_that_do_not_lie_in_order():
    """explain() names the line whose operation reads a transposed tensor, and .contiguous(); of the contiguous one nothing is said."""
    x, w = torch.randn(1500, 1500), torch.randn(1500, 1500)

    def layer(x):
        return (x + w).sum(-1)

    assert advised_of(("aten::add at test_pitfalls.py:", "in layer", ".contiguous()"), lambda: [layer(x.t()) for _ in range(3)])
    assert ".contiguous()" not in advised(lambda: [layer(x) for _ in range(3)])


def test_07_view_after_transpose():
    """PyTorch's words, the call that works, and what was found."""
    told = refused(lambda: torch.randn(2, 3, 4).transpose(0, 1).view(6, 4))
    assert "view size is not compatible" in told and ".reshape(6, 4)" in told and ".contiguous()" in told and "(4, 12, 1)" in told


def test_08_item_in_a_loop():
    """explain() counts numbers read one by one, and names the line."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def metrics():
        return sum(v.item() for v in model(X)[:, 0])

    words = ".item() reads a number 33 times a step (test_pitfalls.py:", "keep sums as tensors"
    assert advised_of(words, lambda: [(step(model, optimizer), metrics()) for _ in range(3)])
    assert ".item() reads" not in advised(lambda: [step(model, optimizer) for _ in range(3)])


def test_09_writing_to_a_leaf():
    """The message names no_grad; param.data and no_grad work."""
    weight = nn.Linear(2, 2).weight
    told = refused(lambda: weight.add_(1.0))
    assert "a leaf Variable that requires grad is being used in an in-place operation" in told and "torch.no_grad()" in told
    weight.data.add_(1.0)
    with torch.no_grad():
        weight.add_(1.0)


# -- 10, 11, 20: losses ----------------------------------------------------------------------------------------------------


def test_10_float_labels():
    """The message names the dtype that was found, and .long()."""
    told = refused(lambda: F.cross_entropy(torch.randn(4, 10), torch.tensor([1.0, 2.0, 3.0, 4.0])))
    assert "float32" in told and "names a class" in told and "target.long()" in told


def test_11_softmax_before_cross_entropy():
    """Probabilities where a loss takes logits, or their logarithms, are noticed while training, on every way into the loss."""
    for criterion in (F.cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)):
        (words,) = warned(lambda criterion=criterion: [criterion(classifier()(X).softmax(1), Y)])
        assert "result of softmax" in words and "applies softmax itself" in words and "Give it the logits" in words
    with_layer = nn.Sequential(classifier(), nn.Softmax(dim=1))
    assert len(warned(lambda: [F.cross_entropy(with_layer(X), Y)])) == 1
    (words,) = warned(lambda: [F.nll_loss(classifier()(X).softmax(1), Y)])
    assert "logarithms of probabilities" in words and "log_softmax" in words
    (words,) = warned(lambda: [F.binary_cross_entropy_with_logits(nn.Linear(8, 1)(X).sigmoid(), torch.ones(32, 1))])
    assert "applies sigmoid itself" in words and "binary_cross_entropy" in words
    (words,) = warned(lambda: [F.kl_div(classifier()(X).softmax(1), torch.full((32, 4), 0.25), reduction="batchmean")])
    assert "log_softmax" in words


def test_11_losses_of_what_they_take():
    """Logits, log_softmax and nll_loss, probabilities and binary_cross_entropy: nothing is said."""

    def program():
        logits = classifier()(X)
        F.cross_entropy(logits, Y), F.nll_loss(logits.log_softmax(1), Y), F.cross_entropy(logits, logits.detach().softmax(1))
        F.kl_div(logits.log_softmax(1), logits.detach().softmax(1), reduction="batchmean")
        F.binary_cross_entropy(logits.sigmoid(), torch.ones(32, 4)), F.binary_cross_entropy_with_logits(logits, torch.ones(32, 4))
        F.mse_loss(logits.softmax(1), F.one_hot(Y, 4).float())

    assert warned(program) == []


@pytest.mark.parametrize("number", [0.01, np.float64(0.01), np.float32(0.01), np.int64(1)])
def test_20_numbers_in_a_loss(number):
    """A number of Python's or NumPy's, on either side, leaves the loss a tensor with its history."""
    model = nn.Linear(8, 4)
    for loss in (F.cross_entropy(model(X), Y) + number, number + F.cross_entropy(model(X), Y), number * F.cross_entropy(model(X), Y)):
        assert isinstance(loss, torch.Tensor) and loss.dtype is torch.float32
        loss.backward()


def test_20_arrays_in_a_loss():
    """An array of NumPy's is refused, as PyTorch does, with the way to keep the gradient."""
    loss = F.cross_entropy(nn.Linear(8, 4)(X), Y)
    assert "torch.as_tensor(array) keeps the gradient" in refused(lambda: loss + np.array(0.01))
    assert (loss + torch.as_tensor(np.array(0.01))).requires_grad


# -- 12 to 14: files and data ----------------------------------------------------------------------------------------------


class Whole(nn.Linear):
    pass


def test_12_saving_the_model_itself(monkeypatch):
    """A file that holds a model is refused by default, with the way to read it; when its class is gone, the message says why, and state_dict()."""
    file = io.BytesIO()
    torch.save(Whole(2, 2), file)
    file.seek(0)
    told = refused(lambda: torch.load(file), Exception)
    assert "test_pitfalls.Whole" in told and "weights_only=False" in told and "safe_globals" in told
    monkeypatch.delitem(globals(), "Whole")
    file.seek(0)
    told = refused(lambda: torch.load(file, weights_only=False), AttributeError)
    assert "test_pitfalls.Whole" in told and "save model.state_dict() instead" in told


def test_13_forgotten_set_epoch():
    """The second epoch with the order of the first is a warning that names set_epoch; with it, with one replica or without shuffling there is none."""
    data = TensorDataset(X)

    def epochs(**options):
        sampler = DistributedSampler(data, rank=0, **{"num_replicas": 2, **options})
        return sampler, DataLoader(data, batch_size=4, sampler=sampler)

    _, loader = epochs()
    (words,) = warned(lambda: [list(loader) for _ in range(3)])
    assert "order of the first" in words and "sampler.set_epoch(epoch)" in words
    sampler, loader = epochs()
    assert warned(lambda: [(sampler.set_epoch(epoch), list(loader)) for epoch in range(3)]) == []
    for options in ({"shuffle": False}, {"num_replicas": 1}):
        _, loader = epochs(**options)
        assert warned(lambda loader=loader: [list(loader) for _ in range(3)]) == []


class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.linalg.svdvals(torch.randn(60, 60, generator=torch.Generator().manual_seed(i)))[:8], Y[i]


def test_14_no_workers():
    """Where loading takes the time, explain() says how much, and num_workers."""
    model, loader = nn.Linear(8, 4), DataLoader(Slow(), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def epoch():
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert advised_of(("Data loading keeps the rest waiting", "num_workers=2"), epoch)


# -- 15 to 18 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda i: torch.randn(2, 3).gather(1, i),
        lambda i: nn.Embedding(3, 4)(i),
        lambda i: torch.randn(2, 3).index_select(0, i[:, 0]),
        lambda i: torch.randn(2, 3)[i],
        lambda i: torch.zeros(2, 3).scatter_(1, i, 1.0),
    ],
)
def test_15_indices_of_the_wrong_dtype(call):
    """int64 and int32 work; floats are refused with their dtype and .long(), an index error too."""
    index = torch.tensor([[0], [1]])
    call(index), call(index.int())
    told = refused(lambda: call(index.float()), (RuntimeError, IndexError))
    assert "float32" in told or "'f' with 4 bytes" in told
    assert ".long()" in told


def test_16_no_grad_around_a_backward():
    """PyTorch's words, and what may have cut the graph."""
    model = nn.Linear(8, 4)
    with torch.no_grad():
        loss = F.cross_entropy(model(X), Y)
    told = refused(loss.backward)
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in told and "no_grad" in told and "detach()" in told


def test_17_moving_after_wrapping(tmp_path):
    """A model that is moved after it was wrapped, as some lists warn of, trains as one that was moved before: what sends gradients moves, too."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        model = nn.Linear(8, 4)
        wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(model)).to(torch.float64)
        for m in (wrapped, model.to(torch.float64)):
            F.cross_entropy(m(X.double() / 3), Y).backward()
        assert wrapped.module.weight.grad.dtype == torch.float64
        assert torch.equal(wrapped.module.weight.grad, model.weight.grad)
    finally:
        distributed.destroy_process_group()


def test_18_attention_without_batch_first():
    """Where a mask gives it away the error asks the question; else summary() tells how a layer reads its input."""
    x, mask = torch.randn(4, 7, 8), torch.zeros(7, 7).bool()
    attention = nn.MultiheadAttention(8, 2)
    told = refused(lambda: attention(x, x, x, attn_mask=mask))
    assert "Are batch and sequence swapped?" in told and "batch_first=True" in told
    told = refused(lambda: attention(x, x, x, key_padding_mask=torch.zeros(4, 7).bool()), AssertionError)
    assert "batch_first=True" in told
    told = str(torch.summary(nn.Sequential(nn.LSTM(8, 8)), (4, 7, 8)))
    assert "LSTM (0) reads (4, 7, 8) as sequence 4, batch 7: batch_first=True if it is the other way round" in told
    assert "MultiheadAttention" in str(torch.summary(attention, input_data=(x, x, x))).splitlines()[-1]
    assert "batch_first" not in str(torch.summary(nn.LSTM(8, 8, batch_first=True), (4, 7, 8)))


# -- the table of symptoms -------------------------------------------------------------------------------------------------


def test_symptom_shapes_cannot_be_multiplied():
    """The sizes, the layer by its path, and the Flatten that is missing."""
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    told = refused(lambda: model(torch.randn(64, 1, 28, 28)))
    assert "mat1 and mat2 shapes cannot be multiplied (1792x28 and 784x128)" in told
    assert "in 0: Linear(784 -> 128)" in told and "input.flatten(1) has shape (64, 784)" in told


def test_symptom_loss_is_nan():
    """A step with gradients of a loss that is nan is a warning that names the rate, clipping and anomaly mode, which finds the operation."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)

    def program():
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(X), torch.zeros(32, 4)).backward()
            optimizer.step()

    (words,) = warned(program)
    assert (
        "the loss is nan" in words and "learning rate is too high" in words and "clip_grad_norm_" in words and "detect_anomaly()" in words
    )
    assert "NaN" in str(torch.viz.gradients(model))
    model = nn.Linear(8, 4)

    def anomalous():
        with torch.autograd.detect_anomaly():
            (model(X) - 1e9).log().mean()

    assert any("NaN appears in forward, in log" in words for words in warned(anomalous))


def test_symptom_nan_that_does_no_harm():
    """A loss over nothing but ignored labels is nan and has no gradient; a scaler skips steps that would be nan: nothing is said."""
    model, scaler = nn.Linear(8, 4), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program():
        F.cross_entropy(model(X), torch.full((32,), -100)).backward()
        optimizer.step()
        optimizer.zero_grad()
        scaler.scale(model(X).mean() * float("nan")).backward()
        scaler.step(optimizer)
        scaler.update()

    assert warned(program) == [] and not model.weight.isnan().any()


def test_symptom_exploding_gradients():
    """Before it is nan it is large: viz.gradients says which parameter, and clipping."""
    model = nn.Linear(8, 4)
    (1e6 * model(X).square().sum()).backward()
    assert "exploding: try clip_grad_norm_" in torch.viz.gradients(model)["weight"].remark


def test_symptom_loss_never_decreases():
    """Layers in a plain list, a target that broadcasts, a layer that gets no gradient: each is named, with its cure. (zero_grad is 1, softmax 11.)"""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)
            self.layers = [nn.Linear(8, 8)]

    model = Net()
    (words,) = warned(lambda: [torch.optim.SGD(model.parameters(), lr=0.1)])
    assert "Net.layers holds a Linear in a list" in words and "nn.ModuleList" in words
    (words,) = warned(lambda: [F.mse_loss(model.head(X), torch.randn(32))])
    assert "target size (torch.Size([32]))" in words and "view_as(input)" in words
    pair = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    pair[1](pair[0](X).detach()).sum().backward()
    assert "no gradient" in torch.viz.gradients(pair)["0.weight"].remark


def test_symptom_same_device():
    """Model on one device, data on another: both are shown, and .to(device)."""
    told = refused(lambda: nn.Sequential(nn.Linear(8, 4)).to("meta")(X))
    assert "same device" in told and "(32, 8) float32 cpu" in told and ".to(device) for every batch" in told
