"""Tasks: what a trained machine is used for."""

import harmonium.ladder  # noqa: F401  (so that ``Kernel.registry`` has all kernels)
from harmonium.tasks.channel import Channel, GaussianChannel, SymmetricChannel, noise_in_states
from harmonium.tasks.channel import channel_of as channel_of
from harmonium.tasks.denoising import DENOISE_METHODS, Denoised, denoise
from harmonium.tasks.imputation import METHODS, Imputation, by_column, impute, unobserved, visible_means
from harmonium.tasks.interactions import (
    EFFECTIVE_METHODS,
    EffectiveCouplings,
    effective_couplings,
)
from harmonium.tasks.prediction import PREDICT_METHODS, predict
from harmonium.tasks.sampling import Sample, sample
from harmonium.tasks.singular_vectors import Directions, directions
from harmonium.tasks.sites import contacts, mutations
from harmonium.tasks.sparse import activate, decimate

__all__ = [
    "DENOISE_METHODS",
    "EFFECTIVE_METHODS",
    "METHODS",
    "PREDICT_METHODS",
    "Channel",
    "Denoised",
    "Directions",
    "EffectiveCouplings",
    "GaussianChannel",
    "Imputation",
    "Sample",
    "SymmetricChannel",
    "activate",
    "by_column",
    "contacts",
    "decimate",
    "denoise",
    "directions",
    "effective_couplings",
    "impute",
    "mutations",
    "noise_in_states",
    "predict",
    "sample",
    "unobserved",
    "visible_means",
]
