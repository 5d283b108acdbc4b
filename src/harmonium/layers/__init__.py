"""Layers: one file for each kind of unit."""

from harmonium.layers.bernoulli import Bernoulli as Bernoulli
from harmonium.layers.binomial import Binomial as Binomial
from harmonium.layers.categorical import Categorical as Categorical
from harmonium.layers.double_relu import DoubleReLU as DoubleReLU
from harmonium.layers.gaussian import Gaussian as Gaussian
from harmonium.layers.layer import Layer as Layer, Moments as Moments, Theta as Theta
from harmonium.layers.relu import ReLU as ReLU
from harmonium.layers.spin import Spin as Spin
from harmonium.layers.truncated_gauss_bernoulli import TruncatedGaussBernoulli as TruncatedGaussBernoulli
from harmonium.layers.truncated_gaussian import TruncatedGaussian as TruncatedGaussian
