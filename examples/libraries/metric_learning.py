"""pytorch-metric-learning: losses, miners, accuracy, samplers."""

import numpy as np
import torch
import torch.nn as nn
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers, samplers

torch.manual_seed(0)
x = torch.randn(24, 6)
y = torch.arange(24) % 4
L = {
    n: getattr(losses, n)
    for n in (
        "AngularLoss",
        "CircleLoss",
        "ContrastiveLoss",
        "FastAPLoss",
        "GeneralizedLiftedStructureLoss",
        "IntraPairVarianceLoss",
        "LiftedStructureLoss",
        "MarginLoss",
        "MultiSimilarityLoss",
        "NCALoss",
        "NPairsLoss",
        "NTXentLoss",
        "PNPLoss",
        "RankedListLoss",
        "SignalToNoiseRatioContrastiveLoss",
        "SupConLoss",
        "TripletMarginLoss",
        "TupletMarginLoss",
        "InstanceLoss",
        "DynamicSoftMarginLoss",
        "SmoothAPLoss",
        "HistogramLoss",
        "ThresholdConsistentMarginLoss",
        "ManifoldLoss",
    )
}
C = (
    "ArcFaceLoss",
    "CosFaceLoss",
    "LargeMarginSoftmaxLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
    "P2SGradLoss",
)
for n, c in L.items():
    torch.manual_seed(1)
    try:
        f = c(margin=0.2, Tn=1.0) if n == "RankedListLoss" else c(l=6) if n == "ManifoldLoss" else c()
        e = x.clone().requires_grad_()
        loss = f(e, y)
        loss.backward() if loss.requires_grad else None
        print(n, round(loss.item(), 5), None if e.grad is None else round(e.grad.abs().sum().item(), 5))
    except Exception as problem:
        print(n, "raises", type(problem).__name__, str(problem)[:80])
for n in C:
    torch.manual_seed(1)
    f = getattr(losses, n)(num_classes=4, embedding_size=6) if n != "P2SGradLoss" else losses.P2SGradLoss(num_classes=4, descriptors_dim=6)
    e = x.clone().requires_grad_()
    loss = f(e, y)
    loss.backward()
    print(n, round(loss.item(), 5), round(e.grad.abs().sum().item(), 5), [tuple(p.shape) for p in f.parameters()])
for n in (
    "TripletMarginMiner",
    "MultiSimilarityMiner",
    "BatchHardMiner",
    "BatchEasyHardMiner",
    "PairMarginMiner",
    "AngularMiner",
    "DistanceWeightedMiner",
    "HDCMiner",
    "UniformHistogramMiner",
    "BatchSemihardMiner" if hasattr(miners, "BatchSemihardMiner") else "TripletMarginMiner",
):
    torch.manual_seed(2)
    m = getattr(miners, n)()
    t = m(x, y)
    print(n, [len(v) for v in t], [int(v.sum()) for v in t], round(losses.TripletMarginLoss()(x, y, t).item(), 5))
for d in (distances.CosineSimilarity(), distances.LpDistance(power=2), distances.DotProductSimilarity(), distances.SNRDistance()):
    print(type(d).__name__, d(x).sum().item())
f = losses.CrossBatchMemory(losses.NTXentLoss(), 6, memory_size=32)
for i in range(4):
    print(f(x + i, y).item(), f.queue_idx)
f = losses.TripletMarginLoss(
    distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(high=0.3), embedding_regularizer=regularizers.LpRegularizer()
)
print(f(x, y).item())
print(f)
torch.manual_seed(3)

np.random.seed(0)
print(list(iter(samplers.MPerClassSampler(y, 2, 8, 24)))[:8])
net = nn.Linear(6, 3)
opt = torch.optim.Adam(net.parameters(), lr=0.05)
mn = miners.MultiSimilarityMiner()
lf = losses.MultiSimilarityLoss()
for i in range(5):
    opt.zero_grad()
    e = net(x)
    loss = lf(e, y, mn(e, y))
    loss.backward()
    opt.step()
    print(i, loss.item())
