"""torchmetrics: the metrics of a classification and a regression, kept over batches, as a collection, and in functional form."""

import torch
import torchmetrics
from torchmetrics import MeanMetric, MetricCollection, functional
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, PearsonCorrCoef, R2Score

torch.manual_seed(0)
kinds = MetricCollection(
    {
        "accuracy": MulticlassAccuracy(5),
        "top2": MulticlassAccuracy(5, top_k=2),
        "f1": MulticlassF1Score(5, average="macro"),
        "precision": torchmetrics.Precision(task="multiclass", num_classes=5, average="weighted"),
        "calibration": torchmetrics.CalibrationError(task="multiclass", num_classes=5),
    }
)
matrix, area, mean = MulticlassConfusionMatrix(5), BinaryAUROC(), MeanMetric()
fits = MetricCollection([MeanAbsoluteError(), MeanSquaredError(squared=False), R2Score(), PearsonCorrCoef()])
for _ in range(4):
    logits, target = torch.randn(64, 5), torch.randint(5, (64,))
    kinds.update(logits, target)
    matrix.update(logits, target)
    area.update(torch.sigmoid(logits[:, 0]), (target == 0).int())
    mean.update(torch.nn.functional.cross_entropy(logits, target), weight=64)
    truth = torch.randn(64)
    fits(truth + 0.3 * torch.randn(64), truth)
for name, value in sorted({**kinds.compute(), **fits.compute()}.items()):
    print(name, value.item())
print("confusion", matrix.compute().tolist())
print("auroc", area.compute().item(), "mean loss", mean.compute().item())
kinds.reset()
picture, other = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
print("ssim", functional.image.structural_similarity_index_measure(picture, other, data_range=1.0).item())
print("psnr", functional.image.peak_signal_noise_ratio(picture, other, data_range=1.0).item())
print("perplexity", functional.text.perplexity(torch.randn(2, 8, 5), torch.randint(5, (2, 8))).item())
print("cosine", functional.pairwise_cosine_similarity(torch.randn(3, 4)).sum().item())
print("bleu", functional.text.bleu_score(["the cat is on the mat"], [["a cat is on the mat"]]).item())
average = torchmetrics.aggregation.RunningMean(window=3)
print("running", [average(torch.tensor(float(x))).item() for x in range(5)])
print(kinds)
