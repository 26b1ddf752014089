"""monai: a three-dimensional U-Net with its transforms, losses, metrics and sliding windows."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, RandFlip, RandGaussianNoise, Resize, ScaleIntensity
from monai.utils import set_determinism

set_determinism(0)
model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
change = Compose([ScaleIntensity(), Resize((16, 16, 16)), RandFlip(0.5), RandGaussianNoise(0.5), NormalizeIntensity()])
change.set_random_state(0)
volumes = torch.stack([torch.as_tensor(change(torch.rand(1, 12, 12, 12))).as_subclass(torch.Tensor) for _ in range(2)])
labels = (volumes > 0).long()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
for _ in range(4):
    loss = loss_of(model(volumes), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
with torch.no_grad():
    found = sliding_window_inference(volumes, (8, 8, 8), 2, model.eval(), overlap=0.25)
    metric = DiceMetric(include_background=False)
    one_hot = [torch.nn.functional.one_hot(t, 2).movedim(-1, 1) for t in (found.argmax(1), labels[:, 0])]
    metric(*one_hot)
    print("dice", metric.aggregate().item(), DiceLoss(sigmoid=True)(found, one_hot[1].float()).item())
