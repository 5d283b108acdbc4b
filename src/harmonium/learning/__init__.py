"""Learning: expectations, rules, and the pullback of gradients to learnable parameters."""

from harmonium.learning import rules
from harmonium.learning.conditionals import Conditionals
from harmonium.learning.coupled import CoupledChains
from harmonium.learning.discriminative import label_rate
from harmonium.learning.exact import exact_gradient
from harmonium.learning.expectation import (
    ClampedChains,
    Enumeration,
    Expectation,
    ExpectationRequest,
    FreeChains,
    Outcome,
    StepControl,
)
from harmonium.learning.expectation import begin as begin
from harmonium.learning.local_modes import LocalModes
from harmonium.learning.mean_field import MeanField
from harmonium.learning.parametrisation import Parametrisation, centred_pullback, pullback
from harmonium.learning.ptt import LadderChains
from harmonium.learning.rule import Estimate, Rule
from harmonium.learning.sharded import Sharded

__all__ = [
    "ClampedChains",
    "Conditionals",
    "CoupledChains",
    "Enumeration",
    "Estimate",
    "Expectation",
    "ExpectationRequest",
    "FreeChains",
    "LadderChains",
    "LocalModes",
    "MeanField",
    "Outcome",
    "Parametrisation",
    "Rule",
    "Sharded",
    "StepControl",
    "centred_pullback",
    "exact_gradient",
    "label_rate",
    "pullback",
    "rules",
]
