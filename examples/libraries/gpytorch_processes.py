"""GPyTorch: exact regression, a kernel zoo, an SVGP, a classifier."""

import gpytorch
import torch
from linear_operator import operators as lo

torch.manual_seed(0)
x = torch.linspace(0, 1, 40)
y = torch.sin(x * 6.28) + torch.randn(40) * 0.1


class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, lik, k):
        super().__init__(x, y, lik)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = k

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit(m, lik, y, steps):
    """The last loss of so many steps; model and likelihood are ready to predict then."""
    m.train()
    lik.train()
    opt = torch.optim.Adam(m.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, m)
    for _ in range(steps):
        opt.zero_grad()
        loss = -mll(m(x), y)
        loss.backward()
        opt.step()
    m.eval()
    lik.eval()
    return loss


K = gpytorch.kernels
for name, k in {
    "rbf": K.ScaleKernel(K.RBFKernel()),
    "matern": K.ScaleKernel(K.MaternKernel(nu=2.5)),
    "periodic": K.ScaleKernel(K.PeriodicKernel()) + K.LinearKernel(),
    "rq": K.RQKernel(),
    "sm": K.SpectralMixtureKernel(num_mixtures=2),
}.items():
    torch.manual_seed(1)
    lik = gpytorch.likelihoods.GaussianLikelihood()
    m = GP(x, y, lik, k)
    if name == "sm":
        k.initialize_from_data(x, y)
    loss = fit(m, lik, y, 15)
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        p = lik(m(torch.linspace(0, 1, 5)))
        low, high = p.confidence_region()
    print(name, round(loss.item(), 5), p.mean.tolist(), low.tolist(), high.tolist(), [n for n, _ in m.named_hyperparameters()])
    m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()})
    print(list(m.state_dict()))


class SV(gpytorch.models.ApproximateGP):
    def __init__(self, u):
        vd = gpytorch.variational.CholeskyVariationalDistribution(u.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, u, vd, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = K.ScaleKernel(K.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(2)
for lik, t in ((gpytorch.likelihoods.GaussianLikelihood(), y), (gpytorch.likelihoods.BernoulliLikelihood(), (y > 0).float())):
    m = SV(x[::4].unsqueeze(-1))
    mll = gpytorch.mlls.VariationalELBO(lik, m, num_data=40)
    opt = torch.optim.Adam([*m.parameters(), *lik.parameters()], lr=0.05)
    out = []
    for _ in range(10):
        opt.zero_grad()
        loss = -mll(m(x.unsqueeze(-1)), t)
        loss.backward()
        opt.step()
        out.append(round(loss.item(), 4))
    m.eval()
    print(out[::3], m(x[:3].unsqueeze(-1)).mean.tolist(), type(lik(m(x[:3].unsqueeze(-1)))).__name__)


class MT(gpytorch.models.ExactGP):
    def __init__(self, x, y, lik):
        super().__init__(x, y, lik)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.covar_module = K.MultitaskKernel(K.RBFKernel(), num_tasks=2, rank=1)

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(3)
lik = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
Y = torch.stack([y, x.cos()], -1)
m = MT(x, Y, lik)
loss = fit(m, lik, Y, 5)
print("mt", round(loss.item(), 5), lik(m(x[:2])).mean.tolist())

A = torch.randn(6, 6)
A = A @ A.T + 6 * torch.eye(6)
L = lo.DenseLinearOperator(A)
print(
    L.logdet().item(),
    L.solve(torch.ones(6, 1)).sum().item(),
    L.cholesky().to_dense().sum().item(),
    lo.DiagLinearOperator(torch.ones(6)).add_jitter(0.5).to_dense().trace().item(),
    (L + lo.DiagLinearOperator(torch.ones(6))).inv_quad_logdet(torch.ones(6, 1), logdet=True),
)
