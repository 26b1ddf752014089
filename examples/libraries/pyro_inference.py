"""Pyro: SVI with an AutoNormal guide, a custom guide, NUTS, GP regression, Predictive."""

import pyro
import pyro.contrib.gp as gp
import pyro.distributions as dist
import pyro.distributions.transforms as T
import pyro.poutine as poutine
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal
from pyro.nn import PyroModule, PyroSample
from pyro.optim import Adam, ClippedAdam

pyro.set_rng_seed(0)
x = torch.randn(60, 2)
y = x @ torch.tensor([1.0, -2.0]) + 0.3 + 0.1 * torch.randn(60)


class Reg(PyroModule):
    def __init__(self):
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](2, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([1]).to_event(1))

    def forward(self, x, y=None):
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            return pyro.sample("obs", dist.Normal(mean, sigma), obs=y)


for guide_kind in (AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal, AutoDelta):
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    model = Reg()
    guide = guide_kind(model)
    svi = SVI(model, guide, Adam({"lr": 0.03}), loss=Trace_ELBO())
    losses = [svi.step(x, y) for _ in range(30)]
    print(guide_kind.__name__, [round(v, 3) for v in losses[::10]], {k: tuple(v.shape) for k, v in pyro.get_param_store().items()})
    print([float(v.sum()) for v in pyro.get_param_store().values()])
pred = Predictive(model, guide=guide, num_samples=5)(x)
print({k: (tuple(v.shape), round(float(v.mean()), 4)) for k, v in sorted(pred.items())})
pyro.clear_param_store()
pyro.set_rng_seed(2)


@config_enumerate
def gmm(data):
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("c", 2):
        loc = pyro.sample("loc", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(w))
        pyro.sample("obs", dist.Normal(loc[z], scale), obs=data)


data = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0])
guide = AutoDelta(poutine.block(gmm, expose=["w", "loc", "scale"]))
svi = SVI(gmm, guide, ClippedAdam({"lr": 0.1}), TraceEnum_ELBO(max_plate_nesting=1))
print("gmm", [round(svi.step(data), 3) for _ in range(20)][::5], {k: v.tolist() for k, v in guide(data).items()})
pyro.set_rng_seed(3)


def conj(obs):
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
    with pyro.plate("n", len(obs)):
        pyro.sample("o", dist.Normal(mu, tau.rsqrt()), obs=obs)


mcmc = MCMC(NUTS(conj), num_samples=20, warmup_steps=20, disable_progbar=True)
mcmc.run(torch.tensor([0.5, 1.0, 1.5]))
s = mcmc.get_samples()
print("nuts", {k: (round(float(v.mean()), 4), tuple(v.shape)) for k, v in s.items()})

pyro.clear_param_store()
pyro.set_rng_seed(4)
X = torch.linspace(0, 3, 15)
Y = X.sin() + 0.05 * torch.randn(15)
g = gp.models.GPRegression(X, Y, gp.kernels.RBF(1, variance=torch.tensor(1.0), lengthscale=torch.tensor(1.0)), noise=torch.tensor(0.1))
losses = gp.util.train(g, num_steps=15)
print("gp", losses[0], losses[-1])
m, v = g(torch.tensor([0.5, 1.5]), full_cov=False)
print(m.tolist(), v.tolist())

pyro.set_rng_seed(5)
flow = T.spline_coupling(2, count_bins=4)
d = dist.TransformedDistribution(dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1), [flow])
opt = torch.optim.Adam(flow.parameters(), lr=1e-2)
for _ in range(5):
    opt.zero_grad()
    loss = -d.log_prob(x.clone()).mean()
    loss.backward()
    opt.step()
    d.clear_cache()
print("flow", loss.item())
print(
    "iaf",
    dist.TransformedDistribution(dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1), [T.affine_autoregressive(2)])
    .rsample((2,))
    .tolist(),
)
