"""Optimisers by name, or any factory of ``torch.optim`` optimisers, made to ascend; averaged parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium import _checks
from harmonium._states import leaves, require_alike
from harmonium.machine import BoltzmannMachine
from harmonium.training.lbfgs import LBFGS
from harmonium.training.penalties import Pull

OptimizerFactory = Callable[[list[Parameter]], torch.optim.Optimizer]


def _uncompiled(kind: type[torch.optim.Optimizer]) -> Any:
    """Returns the optimiser without its guards against torch's compiler, whose import takes a second."""
    guarded = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: unwrap(getattr(kind, name)) for name in guarded}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(unwrap(kind.step))})


Adam, SGD = _uncompiled(torch.optim.Adam), _uncompiled(torch.optim.SGD)  # by these names they are pickled

OPTIMIZERS = {"adam": Adam, "lbfgs": LBFGS, "sgd": SGD}


class Ascent:
    """An optimiser, by its name or a callable, that climbs the gradients it is given, at scheduled rates.

    Attributes:
        optimizer: Optimiser of torch.
        learning_rate: Rate of a named optimiser, else of its first parameter group, before any schedule.
        plain: whether it is ``"sgd"`` at one rate for all parameters.
        momentum: Momentum of ``"sgd"``, 0 of others.
        search: The optimiser, if it searches along lines and so needs all rows and a gradient without noise.
        radius: Radius of the ball around 0 to which every step projects all parameters together; None: none.

    Raises:
        TypeError: the callable returned no optimiser.
    """

    def __init__(
        self,
        optimizer: str | OptimizerFactory,
        parameters: Iterable[Parameter],
        learning_rate: float,
        momentum: float,
        radius: float | None = None,
        factors: Iterable[float] | None = None,
    ) -> None:
        self.radius = radius
        listed = list(parameters)
        self._parameters: list[Tensor] = [*listed]
        factors = factors or [1.0] * len(listed)
        self.optimizer = _build(optimizer, listed, factors, float(learning_rate), float(momentum))
        self.search = self.optimizer if isinstance(self.optimizer, LBFGS) else None
        groups = self.optimizer.param_groups
        self._base_rates = [float(group["lr"]) for group in groups]
        self.learning_rate = float(learning_rate) if isinstance(optimizer, str) else self._base_rates[0]
        self._scale, self._rates = math.nan, list[Tensor]()
        self.set_scale(1.0)
        # Gradient ascent is an addition or three; torch's bookkeeping around it would cost more than that.
        self.plain, self.momentum = optimizer == "sgd" and len(groups) == 1, float(momentum)

    @property
    def recordable(self) -> bool:
        """True if torch can record a step as a part of a CUDA graph."""
        groups, fused = self.optimizer.param_groups, isinstance(self.optimizer, torch.optim.SGD)
        return (self.plain and not self.momentum) or all(
            group["fused"] if fused else "capturable" in group for group in groups
        )

    def keep_rates_on(self, device: torch.device) -> None:
        """Keeps the learning rates in tensors on a device from now on, where a recorded step reads them."""
        dtype = self._parameters[0].dtype
        self._rates = [torch.zeros((), dtype=dtype, device=device) for _ in self._base_rates]
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
        self._scale = math.nan
        self.set_scale(1.0)

    def set_scale(self, scale: float) -> None:
        """Sets the factor of all learning rates in the steps from now on."""
        if scale == self._scale:
            return
        self._scale, largest = scale, torch.finfo(self._parameters[0].dtype).max
        rates = (rate * scale for rate in self._base_rates)
        self._now = [rate if rate <= largest else math.inf for rate in rates]  # in the parameters' dtype
        for tensor, rate in zip(self._rates, self._now, strict=False):
            tensor.fill_(rate)
        if not self._rates:
            for group, rate in zip(self.optimizer.param_groups, self._now, strict=True):
                group["lr"] = rate

    @torch.no_grad()
    def step(self, gradients: list[Tensor], scale: float | None = None) -> None:
        """Makes one update, with all learning rates multiplied by ``scale``; None: as they are set."""
        if scale is not None and scale != self._scale:
            self.set_scale(scale)
        if self.plain and not self.momentum and self._rates:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.addcmul_(gradient, self._rates[0])
        elif self.plain and not self.momentum:
            torch._foreach_add_(self._parameters, gradients, alpha=self._now[0])
        elif self.plain and not self._rates:
            states = [self.optimizer.state[parameter] for parameter in self._parameters]  # torch's own
            for state, gradient in zip(states, gradients, strict=True):
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
            momenta = [state["momentum_buffer"] for state in states]
            torch._foreach_mul_(momenta, self.momentum)
            torch._foreach_sub_(momenta, gradients)
            torch._foreach_sub_(self._parameters, momenta, alpha=self._now[0])
        else:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                # In the parameter's order: fused optimisers go through memory, whatever its order.
                parameter.grad = torch.neg(gradient, out=torch.empty_like(parameter))
            self.optimizer.step()
            # A fused step leaves the versions, by which what was made of parameters is found to be old.
            torch.autograd.graph.increment_version(self._parameters)
            # The rule is about to need the memory.
            for parameter in self._parameters:
                parameter.grad = None
        if self.radius is not None:
            outside = (self.radius / global_norm(self._parameters)).clamp(max=1.0)  # exactly 1 within
            torch._foreach_mul_(self._parameters, outside)

    def restart(self, parameters: Iterable[Tensor]) -> None:
        """Puts other values, of their shapes, in the place of the parameters, and forgets all momenta."""
        for parameter, values in zip(self._parameters, parameters, strict=True):
            parameter.detach().copy_(values)
        self.optimizer.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps: that of the torch optimiser."""
        state: dict[str, Any] = self.optimizer.state_dict()
        for group, rate in zip(state["param_groups"], self._now, strict=True):
            group["lr"] = rate
        return state

    def load_state_dict(self, saved: Any) -> None:
        """Takes over the state of a checkpoint.

        torch's compiled optimisers trust the shapes of their state and write beyond it where it is too small.
        So every entry must have the type, shape and dtype of what the optimiser itself makes in a step, here
        one without a gradient; numbers must be finite. Settings stay those of this run; numbers are taken
        over, as an optimiser may count there, but for the learning rate, which every update sets.

        Raises:
            ValueError: naming the entry that does not fit.
        """
        own_state = self._state_after_a_step()
        if isinstance(saved, dict) and saved.get("state") == {}:  # as before the first update
            own_state["state"] = {}
        require_alike(saved, own_state, "optimizer")
        for where, value in leaves(saved, "optimizer"):
            if type(value) is float and not math.isfinite(value):
                raise ValueError(f"{where}: expected a finite number, received {value!r}")
        for i, (expected, group) in enumerate(
            zip(own_state["param_groups"], saved["param_groups"], strict=True)
        ):
            if group["params"] != expected["params"]:
                key = f"optimizer['param_groups'][{i}]"
                raise ValueError(f"{key}: expected {expected['params']}, received others")
            counted = {name for name, value in expected.items() if type(value) in (int, float)} - {"lr"}
            expected |= {name: group[name] for name in counted}
        self.optimizer.load_state_dict({"state": saved["state"], "param_groups": own_state["param_groups"]})

    def _state_after_a_step(self) -> dict[str, Any]:
        """Returns the state after a step without a gradient; the parameters stay as they are."""
        values_before = [parameter.detach().clone() for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        try:
            self.optimizer.step()
        finally:
            with torch.no_grad():
                for parameter, values in zip(self._parameters, values_before, strict=True):
                    parameter.copy_(values)
                    parameter.grad = None
        return self.state_dict()


class RunningAverage:
    """Polyak's average with exponential forgetting.

    The weight of the newest parameters is the larger of ``1 - decay`` and ``1 / step``: a plain mean at
    first, so that the average owes nothing to where the machine started.

    Attributes:
        machine: a machine whose parameters are the average.
    """

    def __init__(self, machine: BoltzmannMachine, decay: float) -> None:
        self.machine = copy.deepcopy(machine)
        self._decay = decay
        self._average = [parameter.detach() for parameter in self.machine.parameters()]
        self._current = [parameter.detach() for parameter in machine.parameters()]

    def update(self, step: int) -> None:
        """Takes in the parameters as they are after ``step`` >= 1 updates."""
        torch._foreach_lerp_(self._average, self._current, max(1.0 - self._decay, 1.0 / step))


def read_rates(asked: Any) -> dict[str, float]:
    """Returns factors of the learning rate by name, also from texts such as ``"log_variance=0.01"``.

    Raises:
        TypeError, ValueError: something else, or a factor below 0.
    """
    texts = (asked or ()) if isinstance(asked, list | tuple | None) else (asked,)
    pairs = asked.items() if isinstance(asked, Mapping) else (str(text).partition("=")[::2] for text in texts)
    rates = dict[str, float]()
    for name, factor in pairs:
        try:
            rates[name.strip()] = _checks.real(float(factor), "rates", low=0.0)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                "rates: expected NAME=FACTOR with a factor of at least 0, such as log_variance=0.01, "
                f"received {name}={factor}"
            ) from error
    return rates


def factors_of(rates: Mapping[str, float] | None, names: Iterable[str]) -> list[float]:
    """Returns the factor of the learning rate for each parameter; 1 where ``rates`` has none.

    Args:
        rates: factors by the name of a parameter in its machine, or by the last part of it.
        names: the parameters' names, such as ``layers.0.log_variance``.

    Raises:
        ValueError: a name that no learned parameter has.
    """
    listed, rates = list(names), rates or {}
    short = [name.rpartition(".")[2] for name in listed]
    for name in rates:
        if name not in {*listed, *short}:
            known = ", ".join(dict.fromkeys([*short, *listed]))
            raise ValueError(f"rates: expected names of learned parameters, {known}; received {name!r}")
    return [rates.get(name, rates.get(last, 1.0)) for name, last in zip(listed, short, strict=True)]


def _build(
    optimizer: str | OptimizerFactory,
    parameters: list[Parameter],
    factors: Iterable[float],
    learning_rate: float,
    momentum: float,
) -> torch.optim.Optimizer:
    """Returns the optimiser, if by its name with a parameter group for every factor of the learning rate."""
    if not isinstance(optimizer, str):
        built = optimizer(parameters)
        if not isinstance(built, torch.optim.Optimizer):
            raise TypeError(
                "optimizer: expected the callable to return a torch.optim.Optimizer, "
                f"received {type(built).__name__}"
            )
        return built
    if optimizer == "lbfgs":
        return LBFGS(parameters, lr=learning_rate)
    groups = dict[float, list[Parameter]]()
    for parameter, factor in zip(parameters, factors, strict=True):
        groups.setdefault(factor, []).append(parameter)
    settings = {"momentum": momentum} if optimizer == "sgd" else {}
    # The fused kernels make one pass over each parameter, also on the CPU.
    named: torch.optim.Optimizer = OPTIMIZERS[optimizer](
        [{"params": members, "lr": learning_rate * factor} for factor, members in groups.items()],
        lr=learning_rate, fused=True, **settings,
    )  # fmt: skip
    return named


def find_direction(
    parameters: Mapping[str, Parameter],
    estimated: Mapping[str, Tensor],
    weight: float | Tensor = 1.0,
    pulls: Mapping[str, Iterable[Pull]] | None = None,
    owned: bool = False,
) -> list[Tensor]:
    """Returns the direction of an update for every parameter, in their order.

    It is the estimated gradient times the weight of its batch, less what penalties pull (``pulls_of``).
    Tensors of the estimate belong to the rule: where anything changes, new ones are made. If they are
    ``owned``, penalties are taken off where they stand, which spares a tensor as large as the couplings.

    Raises:
        ValueError: the rule left a parameter out, or returned another shape.
    """
    result = []
    for name, parameter in parameters.items():
        estimate = estimated.get(name)
        if estimate is None or estimate.shape != parameter.shape:
            received = f"those of {sorted(estimated)}" if estimate is None else tuple(estimate.shape)
            raise ValueError(
                f"rule: expected a gradient of {name} of shape {tuple(parameter.shape)}, received {received}"
            )
        gradient = estimate.detach()
        taken = (pulls or {}).get(name, ())
        if isinstance(weight, Tensor) or weight != 1:
            gradient = gradient * weight
        elif taken and not owned:
            gradient = gradient.clone()
        for pull in taken:
            pull(gradient, parameter.detach())
        result.append(gradient)
    return result


def global_norm(tensors: list[Tensor]) -> Tensor:
    """Returns the Euclidean norm of all entries together, (), where they are; not finite where one is not."""
    if not tensors:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm
