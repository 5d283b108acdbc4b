"""Layers: one file for each kind of unit."""

from harmonium.layers.bernoulli import Bernoulli
from harmonium.layers.binomial import Binomial
from harmonium.layers.categorical import Categorical
from harmonium.layers.double_relu import DoubleReLU
from harmonium.layers.gaussian import Gaussian, GaussianUnits, NaturalGaussian, StandardisedGaussian
from harmonium.layers.layer import Layer, Moments, Theta
from harmonium.layers.relu import ReLU
from harmonium.layers.spin import Spin
from harmonium.layers.truncated_gauss_bernoulli import TruncatedGaussBernoulli
from harmonium.layers.truncated_gaussian import TruncatedGaussian

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "DoubleReLU",
    "Gaussian",
    "GaussianUnits",
    "Layer",
    "Moments",
    "NaturalGaussian",
    "ReLU",
    "Spin",
    "StandardisedGaussian",
    "Theta",
    "TruncatedGaussBernoulli",
    "TruncatedGaussian",
]
