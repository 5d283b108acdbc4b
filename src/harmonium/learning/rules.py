"""Recipes: each rule is a pair of expectations."""

from __future__ import annotations

from dataclasses import replace

from harmonium.chains import Kernel, Tempering
from harmonium.learning.expectations import ClampedChains, Enumeration, FreeChains, MeanField
from harmonium.learning.rule import Rule


def exact() -> Rule:
    """Both sides by enumeration; for machines small enough for ``likelihood.exact_log_partition``."""
    return Rule("exact()", Enumeration(clamped=True), Enumeration(clamped=False), "exact")


def cd(k: int = 1) -> Rule:
    """Contrastive divergence: k Gibbs sweeps from the data (Hinton 2002).

    Args:
        k: sweeps, at least 1; deeper machines also take k sweeps in the clamped phase.
    """
    return Rule(f"cd({k})", ClampedChains(k), FreeChains(sweeps=k, start="data"), "biased")


def pcd(k: int = 1, chains: int | None = None, *, kernel: Kernel | None = None) -> Rule:
    """Persistent contrastive divergence: chains that go on from update to update (Tieleman 2008).

    Args:
        k: sweeps of every update, at least 1.
        chains: how many chains; None is as many as the first batch has rows.
        kernel: what moves the chains; Gibbs by default.
    """
    name = f"pcd({k}, chains={chains}" + (f", kernel={kernel!r})" if kernel else ")")
    return Rule(name, ClampedChains(k), FreeChains(kernel, k, chains=chains), "asymptotic")


def tempered_pcd(k: int = 1, chains: int | None = None, *, replicas: int = 10) -> Rule:
    """Persistent chains moved by parallel tempering over the couplings (Desjardins et al. 2010).

    Args:
        k: sweeps of every update, at least 1; each moves all replicas and offers all swaps.
        chains: how many chains, each with its replicas; None is as many as the first batch has rows.
        replicas: inverse temperatures, evenly spaced from 1 to 0.
    """
    free = FreeChains(Tempering(replicas), k, chains=chains)
    return Rule(
        f"tempered_pcd({k}, chains={chains}, replicas={replicas})", ClampedChains(k), free, "asymptotic"
    )


def noise_cd(
    k: int = 100, *, kernel: Kernel | None = None, burn_in: int = 0, chains: int | None = None
) -> Rule:
    """Modified contrastive divergence: chains from noise, averaged after burn-in (Liao et al. 2022, Alg. 3).

    Args:
        k: sweeps, at least 1.
        kernel: what moves the chains; Gibbs by default.
        burn_in: sweeps left out, fewer than k.
        chains: how many; None is as many as the batch has rows.
    """
    free = FreeChains(kernel, k, start="noise", chains=chains, burn_in=burn_in)
    return Rule(
        f"noise_cd({k}, kernel={free.kernel!r}, burn_in={burn_in}, chains={chains})",
        ClampedChains(k),
        free,
        "biased",
    )


def mean_field_pcd(
    k: int = 1, chains: int | None = None, *, tolerance: float = 1e-4, max_sweeps: int = 50
) -> Rule:
    """Mean field with clamped data, persistent chains free (Salakhutdinov & Hinton 2009).

    For deep machines. With one hidden layer mean field is exact and this is ``pcd``.

    Args:
        k: sweeps of the free chains, at least 1.
        chains: how many; None is as many as the first batch has rows.
        tolerance: of the mean-field solver, see ``meanfield.naive``.
        max_sweeps: of the mean-field solver.
    """
    name = f"mean_field_pcd({k}, chains={chains}, tolerance={tolerance:g}, max_sweeps={max_sweeps})"
    return Rule(name, MeanField(tolerance, max_sweeps), FreeChains(sweeps=k, chains=chains), "biased")


def centred(rule: Rule) -> Rule:
    """The same rule with its gradient centred: the enhanced gradient (Cho et al. 2011; Melchior et al. 2016).

    A transform of the gradient; the machine and its likelihood are untouched.
    """
    return replace(rule, name=f"centred({rule.name})", centred=True)


RECIPES = {
    "exact": exact,
    "cd": cd,
    "pcd": pcd,
    "tempered_pcd": tempered_pcd,
    "noise_cd": noise_cd,
    "mean_field_pcd": mean_field_pcd,
}
"""Every recipe by name, for estimators and the command line."""
