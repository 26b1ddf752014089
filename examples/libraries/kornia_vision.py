"""kornia: filters, colours, geometry, augmentations with gradients, and losses, on small random pictures."""

import kornia
import kornia.augmentation as A
import torch

torch.manual_seed(0)
x = torch.rand(2, 3, 16, 16, requires_grad=True)
print("blur", kornia.filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)).mean().item())
print("sobel", kornia.filters.sobel(x).mean().item(), kornia.filters.canny(x)[1].sum().item())
print(
    "median", kornia.filters.median_blur(x, (3, 3)).mean().item(), kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)).mean().item()
)
for name in ("rgb_to_hsv", "rgb_to_lab", "rgb_to_ycbcr", "rgb_to_grayscale"):
    print(name, getattr(kornia.color, name)(x).mean().item())
angle = torch.tensor([30.0, -45.0], requires_grad=True)
turned = kornia.geometry.transform.rotate(x, angle)
turned.square().mean().backward()
print("rotate", turned.mean().item(), angle.grad.tolist(), x.grad.abs().sum().item())
print("warp", kornia.geometry.transform.warp_perspective(x, torch.eye(3).repeat(2, 1, 1) * 1.1, (12, 12)).mean().item())
points = torch.rand(1, 8, 2) * 10
shift = kornia.geometry.linalg.transform_points(torch.tensor([[[1.0, 0.2, 3.0], [0.0, 1.0, -1.0], [0.0, 0.0, 1.0]]]), points)
print("homography", kornia.geometry.homography.find_homography_dlt(points, shift).flatten().tolist())
print("quaternion", kornia.geometry.conversions.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]])).flatten().tolist())
print("ssim", kornia.losses.ssim_loss(x, x.detach().flip(-1), 5).item(), kornia.losses.total_variation(x).sum().item())
print("focal", kornia.losses.focal_loss(torch.randn(2, 5, 3, 3), torch.randint(5, (2, 3, 3)), 0.5, 2.0, "mean").item())
torch.manual_seed(1)
augment = A.AugmentationSequential(
    A.RandomHorizontalFlip(p=0.5), A.RandomAffine(20.0, p=1.0), A.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0), A.Normalize(0.5, 0.5)
)
print("augmented", augment(x.detach()).mean().item())
print("morphology", kornia.morphology.dilation(x.detach(), torch.ones(3, 3)).mean().item())
print("harris", kornia.feature.harris_response(x.detach()[:, :1]).abs().mean().item())
