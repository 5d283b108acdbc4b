"""Learning: expectations, rules, and the pullback of gradients to learnable parameters."""

from harmonium.learning import rules as rules
from harmonium.learning.conditionals import Conditionals as Conditionals, DataUnits as DataUnits
from harmonium.learning.coupled import CoupledChains as CoupledChains
from harmonium.learning.discriminative import label_rate as label_rate
from harmonium.learning.expectation import (
    ClampedChains as ClampedChains,
    Enumeration as Enumeration,
    Expectation as Expectation,
    ExpectationRequest as ExpectationRequest,
    FreeChains as FreeChains,
    Outcome as Outcome,
    StepControl as StepControl,
    begin as begin,
)
from harmonium.learning.local_modes import LocalModes as LocalModes
from harmonium.learning.mean_field import MeanField as MeanField
from harmonium.learning.parametrisation import (
    Parametrisation as Parametrisation,
    centred_pullback as centred_pullback,
    pullback as pullback,
)
from harmonium.learning.ptt import LadderChains as LadderChains
from harmonium.learning.rule import Estimate as Estimate, Rule as Rule
