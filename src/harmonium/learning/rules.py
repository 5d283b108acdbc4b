"""Recipes: each rule is a pair of expectations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor

from harmonium import _checks
from harmonium.chains import Kernel, Tempering
from harmonium.coupled import Metropolis, PairKernel
from harmonium.learning.conditionals import Conditionals, DataUnits
from harmonium.learning.coupled import CoupledChains
from harmonium.learning.discriminative import conditional, hybrid
from harmonium.learning.expectation import ClampedChains, Enumeration, FreeChains, Start
from harmonium.learning.local_modes import LocalModes
from harmonium.learning.mean_field import MeanField, SchemeFactory
from harmonium.learning.ptt import ptt
from harmonium.learning.rule import Rule, recipe
from harmonium.meanfield import AdaTAP, Plefka

__all__ = [
    "adatap",
    "cd",
    "centred",
    "conditional",
    "exact",
    "hybrid",
    "mean_field",
    "mean_field_pcd",
    "noise_cd",
    "pcd",
    "pseudo_likelihood",
    "ptt",
    "quadrature",
    "tap",
    "tempered_pcd",
    "ucd",
    "ucd_lmi",
]


def __dir__() -> list[str]:
    """Returns the recipes alone, for the completion of ``hm.rules.`` in an interpreter."""
    return __all__


@recipe
def exact(*, roots: Mapping[int, Tensor] | None = None) -> Rule:
    """Both sides by enumeration; for machines small enough for ``likelihood.exact_log_partition``.

    The fewest states are enumerated: of hidden layers where these are at most 4096, whatever a row lacks
    (``likelihood.HiddenStates``), or of visible ones. Gradients have no noise, and equal arguments give equal
    bits.

    Args:
        roots: Matrices R for visible Gaussian layers, (width_l, width_l), where the data have columns x = R u
            and the machine is one of u; rows may lack any of x. See ``tables.fold``. None: x = u.
    """
    clamped, free = (Enumeration(clamped=side, roots=roots) for side in (True, False))
    return Rule("exact", clamped, free, "exact")


@recipe
def quadrature() -> Rule:
    """Integrates both sides: for one to three Gaussian visible units and any number of discrete hidden units.

    The free side, and what a row does not observe, are integrated on a grid, see
    ``likelihood.quadrature_log_partition``.
    """
    clamped, free = (Enumeration(clamped=side, grid=True) for side in (True, False))
    return Rule("quadrature", clamped, free, "exact")


@recipe
def pseudo_likelihood() -> Rule:
    """Ascent of the log pseudo-likelihood Σ_i ln p(x_i | x_without_i) of machines without hidden layers.

    Of any visible layers and edges. No sampling: a gradient without noise, of a concave function of θ and J.
    It is not the gradient of the likelihood, hence "biased", but its maximum is consistent: with ever more
    data from such a machine it tends to the machine's parameters (Besag 1975; for sparse Ising models
    Ravikumar et al. 2010), with a somewhat larger variance than the likelihood's. Rows have to be complete.
    """
    return Rule("pseudo_likelihood", DataUnits(), Conditionals(), "biased")


@recipe
def cd(k: int = 1) -> Rule:
    """Contrastive divergence: k Gibbs sweeps from the data (Hinton 2002).

    Args:
        k: sweeps, at least 1; deeper machines also take k sweeps in the clamped phase.
    """
    _checks.positive_int(k, "k")
    return Rule("cd", ClampedChains(k), FreeChains(sweeps=k, start="data"), "biased")


@recipe
def pcd(k: int = 1, chains: int | None = None, *, kernel: Kernel | None = None) -> Rule:
    """Persistent contrastive divergence: chains that go on from update to update (Tieleman 2008).

    Args:
        k: sweeps of every update, at least 1.
        chains: how many chains; None is as many as the first batch has rows.
        kernel: what moves the chains; Gibbs by default. With one that does not keep the machine's
            distribution (``Kernel.invariant``) the rule's ``bias`` is "biased". First sweeps, as
            ``Langevin(adjust=...)`` has them, are those of the chains and not of every update.

    Examples:
        >>> import harmonium as hm
        >>> hm.rules.pcd(2).bias
        'asymptotic'
    """
    _checks.positive_int(k, "k")
    free = FreeChains(kernel, k, chains=chains)
    return Rule("pcd", ClampedChains(k), free, "asymptotic" if free.kernel.invariant else "biased")


@recipe
def tempered_pcd(k: int = 1, chains: int | None = None, *, replicas: int = 10) -> Rule:
    """Persistent chains moved by parallel tempering over the couplings (Desjardins et al. 2010).

    Args:
        k: sweeps of every update, at least 1; each moves all replicas and offers all swaps.
        chains: how many chains, each with its replicas; None is as many as the first batch has rows.
        replicas: inverse temperatures, evenly spaced from 1 to 0.
    """
    _checks.positive_int(k, "k")
    free = FreeChains(Tempering(replicas), k, chains=chains)
    return Rule("tempered_pcd", ClampedChains(k), free, "asymptotic")


@recipe
def noise_cd(
    k: int = 100,
    *,
    kernel: Kernel | None = None,
    burn_in: int = 0,
    chains: int | None = None,
) -> Rule:
    """Modified contrastive divergence: chains from noise, averaged after burn-in (Liao et al. 2022, Alg. 4).

    Every update starts its chains again, at visible units drawn from N(0, I) (uniform if discrete) with the
    hidden layers drawn to fit, and averages over all states after burn-in as they come, with the layers of
    ``graph.summed`` summed out (Alg. 3 draws them, which is noisier and has the same mean). The data should
    be standardised, so that the noise has their scale. What is learned is a sampler of k sweeps from noise,
    and not the density (experiments/README.md has the measurement): sample with the same kernel and
    sweeps.

    Args:
        k: sweeps, at least 1.
        kernel: what moves the chains: ``chains.Gibbs`` by default, ``Langevin`` or ``GibbsLangevin``, whose
            steps follow the variances as they are learned.
        burn_in: sweeps left out, fewer than k.
        chains: how many; None is as many as the batch has rows.
    """
    _checks.positive_int(k, "k")
    free = FreeChains(kernel, k, start="noise", chains=chains, burn_in=burn_in)
    return Rule("noise_cd", ClampedChains(k), free, "biased")


@recipe
def mean_field_pcd(
    k: int = 1, chains: int | None = None, *, tolerance: float = 1e-4, max_sweeps: int = 50
) -> Rule:
    """Mean field with clamped data, persistent chains free (Salakhutdinov & Hinton 2009).

    For deep machines. With one hidden layer mean field is exact and this is ``pcd``.

    Args:
        k: sweeps of the free chains, at least 1.
        chains: how many; None is as many as the first batch has rows.
        tolerance: Tolerance of the mean-field solver, see ``meanfield.naive``.
        max_sweeps: Most sweeps of the mean-field solver.
    """
    _checks.positive_int(k, "k")
    clamped = MeanField(tolerance=tolerance, max_sweeps=max_sweeps)
    return Rule("mean_field_pcd", clamped, FreeChains(sweeps=k, chains=chains), "biased")


@recipe
def mean_field(solutions: int | None = None, **settings: Any) -> Rule:
    """Naive mean field in both phases; for comparison: it leaves out the Onsager term of ``tap``.

    Args:
        solutions: see ``tap``.
        **settings: ``start``, ``tolerance``, ``max_sweeps`` and ``damping`` as in ``tap``.
    """
    return _solved(partial(Plefka, order=1), solutions, settings)


@recipe
def tap(solutions: int | None = None, *, order: int = 2, **settings: Any) -> Rule:
    """TAP machines: the gradient of the TAP free energy at its solutions (Tramel et al. 2018, Algs. 2 and 4).

    With one hidden layer the clamped phase is exact; deeper machines solve the TAP equations in both phases.

    Args:
        solutions: free solutions K; None is as many as the batch has rows.
        order: 2, or 3 for machines of Bernoulli and Spin layers.
        **settings: of both solvers and of the free starts; see ``learning.MeanField``: ``start`` ("data",
            "persistent" or "noise"), ``tolerance`` (1e-4, the paper's mean squared change of
            1e-8; None: all of ``max_sweeps``), ``max_sweeps`` (10: solutions need not have converged to
            teach, and the time buys more updates; the paper iterates to convergence), ``damping``
            ("adaptive").
    """
    _checks.positive_int(order, "order", minimum=2)
    return _solved(partial(Plefka, order=order), solutions, settings)


@recipe
def adatap(solutions: int | None = None, **settings: Any) -> Rule:
    """Adaptive TAP in both phases (Tramel et al. 2018, App. D): a matrix to factorise a row and sweep.

    Args:
        solutions: see ``tap``.
        **settings: as in ``tap``; ``damping`` is 0.5.
    """
    return _solved(AdaTAP, solutions, {"damping": 0.5, **settings})


def _solved(scheme: SchemeFactory, solutions: int | None, settings: dict[str, Any]) -> Rule:
    solver = {"tolerance": 1e-4, "max_sweeps": 10, "damping": "adaptive", **settings}
    free = MeanField(scheme, clamped=False, solutions=solutions, **solver)
    solver.pop("start", None)
    return Rule("mean_field", MeanField(scheme, **solver), free, "biased")


@recipe
def ucd(
    k: int = 1,
    m: int | None = None,
    lag: int = 1,
    chains: int | None = None,
    max_sweeps: int | None = None,
    *,
    pair_kernel: PairKernel | None = None,
    start: Start = "data",
) -> Rule:
    """Unbiased contrastive divergence: coupled chains that run until they meet (Qiu et al. 2020, Alg. 2).

    The estimate H_{k:m} of Jacob et al. (2020) replaces the free phase, and the clamped phase too where a
    deep machine has one to sample. ``ucd()`` with a lag of 1 and k = m = 1 is the paper's.

    Args:
        k: first sweep that is averaged, at least 0; a larger k costs time and takes variance away.
        m: last sweep that is averaged; None is k.
        lag: how far the first chain runs ahead, at least 1.
        chains: pairs of the free phase; None is as many as the batch has rows.
        max_sweeps: sweeps after which a pair is given up; with it the rule's ``bias`` is "biased", and the
            fraction of pairs given up is a diagnostic of every update. None: never.
        pair_kernel: ``coupled.Gibbs`` or ``coupled.Metropolis``.
        start: where pairs begin: "data", "persistent" or "noise". Persistent pairs may begin at the chains of
            an earlier rule (``train(..., rule_state=run.rule_state)``): a warm start by PCD (Fig. 9).
    """
    settings = {"pair_kernel": pair_kernel, "k": k, "m": m, "lag": lag, "max_sweeps": max_sweeps}
    free = CoupledChains(**settings, chains=chains, start=start)  # type: ignore[arg-type]
    clamped = CoupledChains(**settings, clamped=True)  # type: ignore[arg-type]
    return Rule("ucd", clamped, free, "unbiased" if max_sweeps is None else "biased")


_PUBLISHED = Metropolis()


@recipe
def ucd_lmi(
    chains: int | None = None,
    max_sweeps: int | None = None,
    *,
    pair_kernel: PairKernel | None = _PUBLISHED,
    marginalise: bool = True,
) -> Rule:
    """Unbiased contrastive divergence with local mode initialisation (Taniguchi et al. 2023, Alg. 2).

    Both phases start one Gibbs sweep from local modes, and coupled chains correct them. In a large machine
    Metropolis pairs nearly always meet in one step, and what makes the mean right are corrections so rare and
    so large that a run may never see one: it is then local-mode contrastive divergence
    (``pair_kernel=None``). ``centred(ucd_lmi())``, from ``machine.init_visible_biases_``, learns far better
    modes than either alone; the page on experiments compares them. Discrete layers only, but
    ``pair_kernel=None`` and Gibbs pairs take real units in one colour. For graphs that two colours suffice
    for.

    Args:
        chains: pairs of the free phase; None is as many as the batch has rows.
        max_sweeps: sweeps after which a pair is given up, see ``ucd``.
        pair_kernel: ``coupled.Metropolis()`` as published, ``coupled.Gibbs()``, or None for no correction;
            the rule's ``bias`` is then "biased".
        marginalise: whether each state is read as the mean of E[S | one colour] and E[S | the other], which
            takes variance away (Taniguchi, Eq. 27). Small machines that Gibbs pairs compile sum the hidden
            layer out instead.
    """
    settings = {"pair_kernel": pair_kernel, "max_sweeps": max_sweeps, "marginalise": marginalise}
    free = LocalModes(**settings, chains=chains)  # type: ignore[arg-type]
    clamped = LocalModes(**settings, clamped=True)  # type: ignore[arg-type]
    unbiased = pair_kernel is not None and max_sweeps is None
    return Rule("ucd_lmi", clamped, free, "unbiased" if unbiased else "biased")


def centred(rule: Rule) -> Rule:
    """Returns the rule with a centred gradient, the enhanced one (Cho et al. 2011; Melchior et al. 2016).

    Offsets (mean activities) are taken from the units before their products are averaged. This changes the
    direction of ascent, and neither the machine nor its likelihood. For rules that average over chains, the
    offsets are the midpoint of data and chain means, where their noise cancels if there are as many chains as
    rows. For exact, coupled, mean-field and conditional rules they are means under the present machine given
    the previous batch, so that an unbiased gradient stays unbiased; for ``ucd_lmi``, the midpoint of these
    and of the means where its chains begin. The state of the rule then keeps that batch (a
    ``PreviousBatch``), with the chains as its ``free``. Pass the state on in a loop of your own: without it
    the offsets come from the current batch, and estimated covariances are too small by about the fraction
    2 / rows. A centred rule comes back as it is.
    """
    _checks.instance(rule, "rule", Rule, "a Rule")
    if rule.centred:
        return rule
    return replace(rule, name=f"centred({rule.name})", centred=True)


_GENERAL: tuple[Callable[..., Rule], ...] = (
    exact, cd, pcd, ptt, tempered_pcd, noise_cd, ucd, ucd_lmi, mean_field_pcd, mean_field, tap, adatap,
)  # fmt: skip
RECIPES = {recipe.__name__: recipe for recipe in _GENERAL}
"""Recipes for machines of any units by name, for estimators."""
BY_NAME = RECIPES | {recipe.__name__: recipe for recipe in (pseudo_likelihood, quadrature)}
"""All recipes that are taken by name, those for some machines among them, for training and the command."""


_WORDS = {"sweeps": "k"}
"""Arguments of recipes by the names that estimators and the command line have for them."""


def options(rule: Rule | str) -> tuple[str, ...]:
    """Lists the options of ``from_options`` for a name, the arguments of its recipe; none for a ``Rule``.

    Raises:
        ValueError: a name that is none of ``BY_NAME``.
    """
    if isinstance(rule, str) and rule not in BY_NAME:
        raise ValueError(
            f"rule: expected a rule such as harmonium.rules.pcd(), or one of the names {', '.join(BY_NAME)}; "
            f"received {rule!r}"
        )
    known = signature(BY_NAME[rule]).parameters if isinstance(rule, str) else {}
    solver = [
        name for name in signature(MeanField).parameters if name not in ("scheme", "clamped", "solutions")
    ]
    return tuple(n for name in known for n in (solver if name == "settings" else [name]))


def from_options(rule: Rule | str, **settings: Any) -> Rule:
    """A rule by its name: what training, estimators and the command line make of one.

    Args:
        rule: a name, one of ``BY_NAME``; or a rule, which comes back as it is.
        **settings: arguments of that recipe, ``sweeps`` another word for ``k``;
            with ``centred=True`` the gradient is centred.

    Raises:
        ValueError: another name, or an option that the recipe does not take; the message lists what is known.
    """
    known, arguments = options(rule), dict[str, Any]()
    enhanced = isinstance(rule, str) and settings.pop("centred", False)
    for option, value in settings.items():
        argument = _WORDS.get(option, option)
        if argument not in known or argument in arguments:
            takes = f"which takes {', '.join(known)}, each once" if known else "which takes no options"
            raise ValueError(f"{option}: expected None with rule={rule!r}, {takes}; received {value!r}")
        arguments[argument] = value
    if not isinstance(rule, str):
        return rule
    parameters = signature(BY_NAME[rule]).parameters
    for argument, value in arguments.items():
        if argument in parameters and parameters[argument].annotation == "bool":
            _checks.instance(value, argument, bool, f"True or False, and not {value!r}")
    plain_rule = BY_NAME[rule](**arguments)
    return centred(plain_rule) if enhanced else plain_rule
