"""PyTorch-Ignite: engines, metrics, handlers."""

from pathlib import Path
from tempfile import mkdtemp

import ignite.distributed as idist
import torch
import torch.nn as nn
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, CosineAnnealingScheduler, EarlyStopping, EMAHandler, TerminateOnNan, global_step_from_engine
from ignite.metrics import (
    PSNR,
    SSIM,
    Accuracy,
    Bleu,
    ConfusionMatrix,
    EpochMetric,
    Fbeta,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    Precision,
    Recall,
    RunningAverage,
    TopKCategoricalAccuracy,
)

torch.manual_seed(0)
X = torch.randn(64, 5)
Y = (X.sum(1) > 0).long()
ds = torch.utils.data.TensorDataset(X, Y)
dl = torch.utils.data.DataLoader(ds, 16, shuffle=True)
m = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
crit = nn.CrossEntropyLoss()
tr = create_supervised_trainer(m, opt, crit)
ev = create_supervised_evaluator(
    m,
    metrics={
        "acc": Accuracy(),
        "nll": Loss(crit),
        "p": Precision(average=True),
        "r": Recall(average=True),
        "f1": Fbeta(1),
        "cm": ConfusionMatrix(2),
        "top": TopKCategoricalAccuracy(1),
    },
)
tr.add_event_handler(Events.ITERATION_STARTED, CosineAnnealingScheduler(opt, "lr", 0.1, 0.01, len(dl)))
RunningAverage(output_transform=lambda x: x).attach(tr, "loss")
ema = EMAHandler(m, momentum=0.1)
ema.attach(tr)


@tr.on(Events.EPOCH_COMPLETED)
def log(e):
    ev.run(dl)
    r = ev.state.metrics
    print(
        e.state.epoch,
        e.state.metrics["loss"],
        {k: (v.tolist() if hasattr(v, "tolist") else v) for k, v in r.items()},
        opt.param_groups[0]["lr"],
    )


@tr.on(Events.ITERATION_COMPLETED(every=3))
def it(e):
    print("it", e.state.iteration, round(e.state.output, 5))


ev.add_event_handler(Events.COMPLETED, EarlyStopping(patience=2, score_function=lambda e: e.state.metrics["acc"], trainer=tr))
folder = mkdtemp()
ck = Checkpoint({"model": m, "opt": opt, "trainer": tr}, folder, n_saved=1, global_step_transform=global_step_from_engine(tr))
tr.add_event_handler(Events.EPOCH_COMPLETED, ck)
tr.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
tr.run(dl, max_epochs=4)
print(Path(ck.last_checkpoint).name, tr.state.epoch, sum(p.sum().item() for p in ema.ema_model.parameters()))
Checkpoint.load_objects({"model": m, "opt": opt}, torch.load(Path(folder) / Path(ck.last_checkpoint).name))
print(idist.get_rank(), idist.get_world_size(), idist.backend(), idist.device())
for met, args in (
    (MeanSquaredError(), (torch.randn(4), torch.zeros(4))),
    (SSIM(1.0), (torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16))),
    (PSNR(1.0), (torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8))),
    (MeanAbsoluteError(), (torch.randn(4), torch.zeros(4))),
    (EpochMetric(lambda p, t: (p - t).mean().item(), check_compute_fn=False), (torch.randn(4), torch.zeros(4))),
    (Bleu(ngram=2), ([["a", "b", "c"]], [[["a", "b", "d"]]])),
):
    met.reset()
    met.update(args)
    print(type(met).__name__, float(met.compute()))
