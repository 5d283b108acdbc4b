"""The inverse Ising problem: couplings of a 10x10 lattice of spins from 20,000 independent states.

    python experiments/inverse_ising.py                      # lattice known (quick)
    python experiments/inverse_ising.py --budget paper       # and dense: all 4,950 pairs are learned

Couplings of nearest neighbours with open ends are N(0, 0.3²), biases N(0, 0.1²). The data are exact,
independent draws: column by column of the lattice, by transfer matrices between the 2^10 states of a column.
They also give exact expectations, and so the maximum of the likelihood on the lattice.

Learned by `pseudo_likelihood` and by `pcd` (2,000 chains), all rows at every update, couplings and biases
from 0; once with the lattice as a mask, once with all pairs. The statistical floor is the RMS error that
maximum likelihood has in the limit of much data, sqrt(mean of diag(F⁻¹) / rows) over the couplings, with the
Fisher information F, the covariance of the statistics, from as many draws again as stated. An error is
"beyond the floor" by sqrt(RMS² - floor²), or by 0 where it is below.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from ucd_common import figure, parser, write

import harmonium as hm

SIDE, ROWS, CHAINS = 10, 20_000, 2_000
FISHER_DRAWS = {"lattice": 200_000, "dense": 40_000}


@dataclass
class Lattice:
    """Spins of a lattice with open ends, all in float64.

    Attributes:
        bias: (columns, rows).
        down: couplings within a column, (columns, rows - 1).
        across: couplings from a column to the next, (columns - 1, rows).
    """

    bias: Tensor
    down: Tensor
    across: Tensor

    def __post_init__(self) -> None:
        rows = self.bias.shape[1]
        digits = torch.arange(2**rows).unsqueeze(-1) >> torch.arange(rows)
        self.states = (digits % 2 * 2 - 1).double()  # of a column
        pairs = self.states[:, :-1] * self.states[:, 1:]
        self._alone = self.bias @ self.states.t() + self.down @ pairs.t()  # ln weights, (columns, 2^rows)
        self._ahead = self._messages(self._alone, self.across)
        self._behind = self._messages(self._alone.flip(0), self.across.flip(0)).flip(0)

    def _messages(self, alone: Tensor, across: Tensor) -> Tensor:
        """ln of the sum over all later columns, for every state of a column: (columns, 2^rows)."""
        messages = [torch.zeros_like(alone[0])]
        for weights, couplings in zip(alone.flip(0)[:-1], across.flip(0), strict=True):
            messages.append((self._transfer(couplings) + weights + messages[-1]).logsumexp(-1))
        return torch.stack(messages).flip(0)

    def _transfer(self, couplings: Tensor) -> Tensor:
        return (self.states * couplings) @ self.states.t()

    def log_partition(self) -> float:
        return float((self._alone[0] + self._ahead[0]).logsumexp(0))

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """Independent states, (rows, spins), spins column by column."""
        distribution = (self._alone[0] + self._ahead[0]).softmax(0)
        now = torch.multinomial(distribution, rows, replacement=True, generator=generator)
        columns = [now]
        for c, couplings in enumerate(self.across, 1):
            logits = self._transfer(couplings) + self._alone[c] + self._ahead[c]
            cumulative = logits.softmax(-1).cumsum(-1)
            noise = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
            now = torch.cat([
                torch.searchsorted(cumulative[part], u * cumulative[part][:, -1:]).squeeze(-1)
                for part, u in zip(now.split(2000), noise.split(2000), strict=True)
            ])  # fmt: skip
            columns.append(now)
        return torch.cat([self.states[column] for column in columns], 1)

    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Exact E of every spin and of every pair of neighbours, in the order of the attributes."""
        distributions = (self._alone + self._ahead + self._behind).softmax(-1)
        across = []
        for c, couplings in enumerate(self.across):
            before = (self._alone[c] + self._behind[c]).unsqueeze(-1)
            joint = before + self._transfer(couplings) + self._alone[c + 1] + self._ahead[c + 1]
            joint = (joint - joint.max()).exp_()
            across.append(((joint @ self.states) * self.states).sum(0) / joint.sum())
        pairs = self.states[:, :-1] * self.states[:, 1:]
        return distributions @ self.states, distributions @ pairs, torch.stack(across)

    def flat(self) -> Tensor:
        return torch.cat([self.bias.flatten(), self.down.flatten(), self.across.flatten()])

    def moved(self, step: Tensor) -> Lattice:
        parts = (self.bias, self.down, self.across)
        steps = step.split([part.numel() for part in parts])
        return Lattice(*(part + each.view_as(part) for part, each in zip(parts, steps, strict=True)))

    def pairs(self) -> Tensor:
        """The two spins of every coupling, (2, couplings), ``down`` before ``across``."""
        columns, rows = self.bias.shape
        spin = torch.arange(columns * rows).view(columns, rows)
        first = torch.cat([spin[:, :-1].flatten(), spin[:-1].flatten()])
        return torch.stack([first, torch.cat([spin[:, 1:].flatten(), spin[1:].flatten()])])

    def couplings(self) -> Tensor:
        """As a symmetric matrix, (spins, spins)."""
        J = torch.zeros(self.bias.numel(), self.bias.numel(), dtype=torch.float64)
        i, j = self.pairs()
        J[i, j] = J[j, i] = torch.cat([self.down.flatten(), self.across.flatten()])
        return J


def random_lattice(columns: int, rows: int, seed: int) -> Lattice:
    generator = torch.Generator().manual_seed(seed)

    def normal(std: float, *shape: int) -> Tensor:
        return std * torch.randn(shape, generator=generator, dtype=torch.float64)

    return Lattice(normal(0.1, columns, rows), normal(0.3, columns, rows - 1), normal(0.3, columns - 1, rows))


def statistics(x: Tensor, pairs: Tensor) -> Tensor:
    """Spins and products of pairs of spins, (rows, spins + pairs)."""
    return torch.cat([x, x[:, pairs[0]] * x[:, pairs[1]]], 1)


def fisher(truth: Lattice, pairs: Tensor, draws: int) -> Tensor:
    """F⁻¹ in float64; the inverse of a sampled covariance is too large by n / (n - p - 1), taken out."""
    generator = torch.Generator().manual_seed(2)
    size = truth.bias.numel() + pairs.shape[1]
    total, square = torch.zeros(size), torch.zeros(size, size)
    for _ in range(draws // 10_000):
        s = statistics(truth.draw(10_000, generator).float(), pairs)
        total += s.sum(0)
        square += s.t() @ s
    mean = total.double() / draws
    covariance = square.double() / draws - mean.outer(mean)
    return torch.cholesky_inverse(torch.linalg.cholesky(covariance)) * ((draws - size - 1) / draws)


def most_likely(X: Tensor, truth: Lattice, inverse_fisher: Tensor) -> Lattice:
    """The maximum of the exact likelihood over all couplings of the lattice."""
    wanted = statistics(X, truth.pairs()).mean(0)
    best = truth
    for _ in range(50):
        difference = wanted - torch.cat([part.flatten() for part in best.means()])
        if float(difference.abs().max()) < 1e-10:
            return best
        best = best.moved(inverse_fisher @ difference)
    raise RuntimeError("expected the exact likelihood to reach its maximum in 50 steps")


RULES: dict[str, dict[str, Any]] = {
    "pseudo_likelihood": {"updates": 60, "learning_rate": 0.1, "momentum": 0.7},
    "pcd": {"updates": 300, "learning_rate": 0.05, "momentum": 0.7, "schedule": "linear"},
}


def learn(X: Tensor, coupling: hm.couplings.Coupling, rule: str) -> tuple[Tensor, float, float]:
    """The learned couplings, symmetric, with wall and CPU seconds."""
    machine = hm.BoltzmannMachine([hm.Spin(X.shape[1])], {(0, 0): coupling})
    made = hm.rules.pcd(1, CHAINS) if rule == "pcd" else hm.rules.pseudo_likelihood()
    wall, cpu = time.perf_counter(), time.process_time()
    hm.train(machine, X.float(), rule=made, batch_size=len(X), progress=False, **RULES[rule]).whole()
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return machine.couplings[0].matrix().detach().double(), *seconds


def main() -> None:
    arguments = parser(__doc__, "inverse_ising").parse_args()
    torch.set_num_threads(arguments.threads)
    truth = random_lattice(SIDE, SIDE, 0)
    J = truth.couplings()
    started = time.perf_counter()
    X = truth.draw(ROWS, torch.Generator().manual_seed(1))
    print(f"ln Z {truth.log_partition():.6f}; {ROWS} exact draws in {time.perf_counter() - started:.1f} s")
    results: dict[str, Any] = {}
    learned: dict[str, Tensor] = {}
    for name in ("lattice", "dense")[: 1 if arguments.budget == "quick" else 2]:
        everything = torch.triu_indices(SIDE**2, SIDE**2, 1)
        pairs = truth.pairs() if name == "lattice" else everything
        inverse_fisher = fisher(truth, pairs, FISHER_DRAWS[name])
        floor = float((inverse_fisher.diagonal()[SIDE**2 :].mean() / ROWS).sqrt())
        found: dict[str, Any] = {"couplings": pairs.shape[1], "floor": floor}
        results[name] = found
        print(f"{name}: {pairs.shape[1]} couplings, floor {floor:.5f} ({FISHER_DRAWS[name]} draws)")
        if name == "lattice":
            best = most_likely(X, truth, inverse_fisher).couplings()
            found["maximum_likelihood"] = {"rms_error": rms((best - J)[*pairs])}
            print(f"  {'exact maximum':18} RMS error {found['maximum_likelihood']['rms_error']:.5f}")
        for rule in RULES:
            coupling = hm.Masked(J != 0) if name == "lattice" else hm.Dense()
            W, wall, cpu = learn(X, coupling, rule)
            learned[f"{rule}, {name}"] = W[*everything]
            error = rms((W - J)[*pairs])
            beyond = max(0.0, error**2 - floor**2) ** 0.5
            found[rule] = {"rms_error": error, "beyond": beyond, "wall_seconds": wall, "cpu_seconds": cpu}
            print(
                f"  {rule:18} RMS error {error:.5f}, beyond the floor {beyond:.5f}, "
                f"{wall:.1f} s ({cpu:.1f} s of CPU)"
            )
            if name == "lattice":
                apart = found[rule]["from_the_maximum"] = rms((W - best)[*pairs])
                print(f"  {'':18} RMS distance from the exact maximum {apart:.5f}")
    picture, axes = figure(len(learned))
    for axis, (title, W) in zip(axes[0], learned.items(), strict=True):
        axis.plot(J[*everything], W, ".", markersize=3)
        axis.axline((0, 0), slope=1, linewidth=0.8)
        axis.set(title=title, xlabel="coupling", ylabel="learned")
    settings = {"rows": ROWS, "side": SIDE, "chains": CHAINS, "fisher_draws": FISHER_DRAWS, "rules": RULES}
    write(arguments.out, {"settings": settings, "results": results}, picture)


def rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


if __name__ == "__main__":
    main()
