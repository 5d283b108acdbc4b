"""Exact sums over a graph of layers, in float64, from the formulas alone.

It shares no code with the library: of a machine it reads the kinds, the learnable parameters, the edges, the
masks and which layers are visible. Everything follows from one quadratic form over the joint state x, all
layers' columns side by side (FORMULAS §1, §10):

    -E(x) = h·x + ½ xᵀ Q x + ln(base measure)

Q holds J of every edge, symmetric, and -1/σ² on the diagonal of Gaussian columns. Columns that are not given
are summed out: Gaussian ones by completing the square, discrete ones state by state. Base measures stay
unnormalised: 1 for each state (the binomial's is C(N, x)), dx for a Gaussian.
"""

import math
from typing import Any

import torch
from torch import Tensor

PARAMETERS = {
    "bernoulli": ("bias",),
    "spin": ("bias",),
    "categorical": ("bias",),
    "binomial": ("bias",),
    "gaussian": ("mean", "log_variance"),
}
LARGEST_SUM = 2**21


def _leaf(tensor: Any) -> Tensor:
    return torch.as_tensor(tensor).detach().to("cpu", torch.float64, copy=True).requires_grad_()


def _choose(x: Tensor, trials: Tensor) -> Tensor:
    """ln Π C(N, x) over the binomial columns of x (…, columns); trials is 0 at every other column (§10)."""
    n, x = trials[trials > 0], x[..., trials > 0]
    return (torch.lgamma(n + 1) - torch.lgamma(x + 1) - torch.lgamma(n - x + 1)).sum(-1)


class GraphOracle:
    """Exact sums over a small machine.

    `parameters` holds float64 copies of the learnable parameters by name, leaves that require a gradient. All
    results but those of `gradient` and `expectations` are differentiable in them.
    """

    def __init__(self, machine: Any) -> None:
        self.kinds = [layer.kind for layer in machine.layers]
        self.edges = [(int(a), int(b)) for a, b in machine.edges]
        self.visible = tuple(machine.visible)
        self.parameters: dict[str, Tensor] = {}
        self.masks: list[Tensor] = []
        self.columns: list[slice] = []  # of each layer in the joint state
        self.units: list[tuple[slice, Tensor]] = []  # each discrete unit: its columns, its states one a row
        gaussian: list[bool] = []  # for every column
        trials: list[float] = []
        for l, layer in enumerate(machine.layers):
            for name in PARAMETERS[layer.kind]:
                self.parameters[f"layers.{l}.{name}"] = _leaf(getattr(layer, name))
            first, n = len(gaussian), int(layer.n_units)
            size = layer.bias.shape[1] if layer.kind == "categorical" else 1
            counts = torch.as_tensor(layer.trials).expand(n).tolist() if layer.kind == "binomial" else [0] * n
            self.columns.append(slice(first, first + n * size))
            gaussian += [layer.kind == "gaussian"] * (n * size)
            trials += [float(count) for count in counts for _ in range(size)]
            for i, count in enumerate(counts if layer.kind != "gaussian" else []):
                values = {
                    "bernoulli": torch.tensor([[0.0], [1.0]]),
                    "spin": torch.tensor([[-1.0], [1.0]]),
                    "categorical": torch.eye(size),
                    "binomial": torch.arange(count + 1.0)[:, None],
                }[layer.kind]
                self.units.append((slice(first + i * size, first + (i + 1) * size), values.double()))
        for i in range(len(self.edges)):
            coupling = machine.couplings[i]
            self.parameters[f"couplings.{i}.weight"] = weight = _leaf(coupling.weight)
            mask = getattr(coupling, "mask", None)
            self.masks.append(torch.ones_like(weight) if mask is None else _leaf(mask).detach())
        self.gaussian, self.trials = torch.tensor(gaussian), torch.tensor(trials, dtype=torch.float64)

    def log_partition(self) -> Tensor:
        """ln Z (§1)."""
        return self._log_sum(self._nothing_given(1), *self._form())[0]

    def log_unnormalised(self, v: Tensor) -> Tensor:
        """ln p~(v), (batch,): ln Σ exp(-E) over hidden units and over entries of v that are NaN."""
        return self._log_sum(self._joint(v), *self._form())

    def log_likelihood(self, v: Tensor) -> Tensor:
        """ln p(v), (batch,); v has to be complete."""
        if torch.as_tensor(v).isnan().any():
            raise ValueError("v has NaN: use log_likelihood_observed")
        return self.log_likelihood_observed(v)

    def log_likelihood_observed(self, v: Tensor) -> Tensor:
        """ln p(observed entries of each row), (batch,); NaN is not observed."""
        return self.log_unnormalised(v) - self.log_partition()

    def log_conditional(self, v: Tensor, given: list[int]) -> Tensor:
        """ln p(other visible layers | visible layers in `given`), (batch,); ln Z is not needed."""
        if not set(given) <= set(self.visible):
            raise ValueError(f"given must be visible layers, some of {self.visible}, got {given}")
        form, x = self._form(), self._joint(v)
        condition = self._nothing_given(len(x))
        for l in given:
            condition[:, self.columns[l]] = x[:, self.columns[l]]
        return self._log_sum(x, *form) - self._log_sum(condition, *form)

    def gradient(
        self, v: Tensor, weights: Tensor | None = None, given: list[int] | None = None
    ) -> dict[str, Tensor]:
        """∇ of the weighted mean over rows of ln p(observed v), or ln p(rest | given), by autograd (§2)."""
        rows = self.log_likelihood_observed(v) if given is None else self.log_conditional(v, given)
        weights = torch.ones_like(rows) if weights is None else torch.as_tensor(weights).to(rows)
        mean = (weights * rows).sum() / weights.sum()
        gradients = torch.autograd.grad(mean, list(self.parameters.values()), materialize_grads=True)
        return dict(zip(self.parameters, gradients, strict=True))

    def energy(self, states: list[Tensor]) -> Tensor:
        """E(x), (batch,), of joint states, one (batch, width) a layer (§1)."""
        x = torch.cat([torch.as_tensor(state).detach().to("cpu", torch.float64) for state in states], 1)
        return -self._sum_out(x, torch.zeros(x.shape[1], dtype=torch.bool), *self._form())

    def probabilities(self) -> tuple[list[Tensor], Tensor]:
        """All joint states of a discrete machine, one (states, width) a layer, and their probabilities."""
        if self.gaussian.any():
            raise ValueError("a machine with Gaussian layers has no list of states")
        states = self._enumerate(torch.ones_like(self.gaussian))
        layers = [states[:, columns] for columns in self.columns]
        return layers, torch.softmax(-self.energy(layers), 0)

    def expectations(self, v: Tensor | None = None) -> tuple[list[tuple[Tensor, ...]], list[Tensor]]:
        """E[S] of the free machine, or the mean over rows of E[S | v] (§2): derivatives of ln Z by (h, Q).

        The layers' E[t] (tuples: E[x] as columns; Gaussian also E[-½x²]) and the edges' E[x_a ⊗ x_b], all
        entries of it for an inner edge too.
        """
        x = self._nothing_given(1) if v is None else self._joint(v)
        h, q = (part.detach().requires_grad_() for part in self._form())
        by_h, by_q = torch.autograd.grad(self._log_sum(x, h, q).mean(), (h, q))
        second = by_q + by_q.T  # the form has ½ Q
        layers: list[tuple[Tensor, ...]] = [(by_h[columns],) for columns in self.columns]
        for l, columns in enumerate(self.columns):
            if self.kinds[l] == "gaussian":
                layers[l] = (by_h[columns], -0.5 * second.diagonal()[columns])
        return layers, [second[self.columns[a], self.columns[b]] for a, b in self.edges]

    def _form(self) -> tuple[Tensor, Tensor]:
        """(h, Q) in the learnable parameters: θ = bias, or Liao's U = μ/σ², V = 1/σ², J = W/σ² (§1, §2)."""
        fields, precisions = [], []
        for l, kind in enumerate(self.kinds):
            own = [self.parameters[f"layers.{l}.{name}"] for name in PARAMETERS[kind]]
            if kind == "gaussian":
                fields.append(own[0] / own[1].exp())
                precisions.append(1 / own[1].exp())
            else:
                fields.append(own[0].flatten())
                precisions.append(torch.zeros_like(fields[-1]))
        q = -torch.diag(torch.cat(precisions))
        scales = [p if kind == "gaussian" else p + 1 for p, kind in zip(precisions, self.kinds, strict=True)]
        for i, (a, b) in enumerate(self.edges):
            j = self.parameters[f"couplings.{i}.weight"] * self.masks[i]
            if a == b:  # each pair of units counted once (§10)
                n = self.parameters[f"layers.{a}.{PARAMETERS[self.kinds[a]][0]}"].shape[0]
                unit = torch.arange(n).repeat_interleave(len(j) // n)
                j = j * (unit[:, None] < unit)
            j = scales[a][:, None] * j * scales[b]
            block = torch.zeros_like(q)
            block[self.columns[a], self.columns[b]] = j
            q = q + block + block.T
        return torch.cat(fields), q

    def _nothing_given(self, rows: int) -> Tensor:
        return torch.full((rows, len(self.gaussian)), math.nan, dtype=torch.float64)

    def _joint(self, v: Tensor) -> Tensor:
        """Joint states: the columns of v, in the order of `visible`, at their layers; NaN elsewhere."""
        v = torch.as_tensor(v).detach().to("cpu", torch.float64)
        order = torch.cat([torch.arange(len(self.gaussian))[self.columns[l]] for l in self.visible])
        if v.ndim != 2 or v.shape[1] != len(order):
            raise ValueError(f"v must be (batch, {len(order)}), got {tuple(v.shape)}")
        x = self._nothing_given(len(v))
        x[:, order] = v
        return x

    def _log_sum(self, x: Tensor, h: Tensor, q: Tensor) -> Tensor:
        """ln Σ exp(-E) over the NaN entries of each row of x, (batch,); rows alike in NaN go together."""
        patterns, which = x.isnan().unique(dim=0, return_inverse=True)
        total = torch.zeros(len(x), dtype=torch.float64)
        for i, free in enumerate(patterns):
            rows = (which == i).nonzero()[:, 0]
            total = total.index_add(0, rows, self._sum_out(x[rows], free, h, q))
        return total

    def _sum_out(self, x: Tensor, free: Tensor, h: Tensor, q: Tensor) -> Tensor:
        """The same where all rows lack the columns `free` (width,), a mask."""
        integrated, rest = free & self.gaussian, ~(free & self.gaussian)
        p, r = -q[integrated][:, integrated], q[rest][:, integrated]
        factor, failed = torch.linalg.cholesky_ex(p)
        if failed:
            raise ValueError(
                "the Gaussian units' joint precision is not positive definite: no such distribution"
            )
        inverse, field = torch.cholesky_inverse(factor), h[integrated]
        # the square completed: (h, Q) of the remaining columns, and a constant
        constant = 0.5 * (field @ inverse @ field + len(p) * math.log(2 * math.pi))
        constant = constant - factor.diagonal().log().sum()
        h, q = h[rest] + r @ inverse @ field, q[rest][:, rest] + r @ inverse @ r.T

        summed, given = free[rest], ~free[rest]
        states, x, trials = self._enumerate(free & ~self.gaussian), x[:, rest][:, given], self.trials[rest]

        def alone(y: Tensor, part: Tensor) -> Tensor:
            return y @ h[part] + 0.5 * (y @ q[part][:, part] * y).sum(1) + _choose(y, trials[part])

        joint = x @ q[given][:, summed] @ states.T + alone(states, summed)
        return constant + alone(x, given) + joint.logsumexp(1)

    def _enumerate(self, free: Tensor) -> Tensor:
        """Every joint state of the discrete units whose columns are free, (states, columns)."""
        states = torch.zeros(1, 0, dtype=torch.float64)
        for columns, values in self.units:
            if free[columns].all():
                if len(states) * len(values) > LARGEST_SUM:
                    raise ValueError(f"more than {LARGEST_SUM} joint states to sum over")
                states = torch.cat(
                    [states.repeat_interleave(len(values), 0), values.repeat(len(states), 1)], 1
                )
            elif free[columns].any():
                raise ValueError("the columns of a categorical unit are NaN together or not at all")
        return states
