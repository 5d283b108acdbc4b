"""A mixture of Bernoullis and a variational autoencoder on the digits of the benchmark's time to quality.

    python experiments/beside_vae.py            # some CPU minutes
    python experiments/beside_vae.py --quick    # one setting of each

Rows are those of ``python -m benchmarks quality``: digits of 8×8 pixels at a threshold, 1,500 learnt, 297
held out, which also choose among settings, for all alike. The mixture is fitted by expectation-maximisation
with a count of one half added to every pixel of a component, the best of 3 starts. The autoencoder has one
layer of 200 tanh units each way and normal latent variables, is trained by Adam and its evidence lower bound
in batches of 100, and judged at 20 points along its training by importance sampling with 500 draws a row
(Burda et al. 2016), a lower bound on the log-likelihood as well. CPU seconds are of training on one thread.
The record has the highest rate with 16 latent variables alone.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import harmonium as hm

WIDTH, BATCH, DRAWS = 200, 100, 500


def digits() -> tuple[Tensor, Tensor]:
    X = torch.from_numpy(hm.data.threshold(hm.data.digits()[0])).float()
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    return X[order[:1500]], X[order[1500:]]


def log_bernoulli(x: Tensor, logits: Tensor) -> Tensor:
    return (x * logits - softplus(logits)).sum(-1)


def mixture(train: Tensor, test: Tensor, components: int, seed: int) -> float:
    """Held-out nats a row of a mixture of products of Bernoulli distributions after 100 rounds."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(len(train), components, generator=generator).softmax(1)
    for _ in range(100):
        total = share.sum(0)
        mean = (share.T @ train + 0.5) / (total + 1).unsqueeze(1)
        logits, weight = mean.logit(), (total / len(train)).log()
        share = (train @ logits.T - softplus(logits).sum(1) + weight).softmax(1)
    return float((test @ logits.T - softplus(logits).sum(1) + weight).logsumexp(1).mean())


class Autoencoder(nn.Module):
    def __init__(self, latent: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 64))

    def log_weights(self, x: Tensor) -> Tensor:
        """ln p(x, z) - ln q(z | x) for one draw of z a row."""
        mean, log_deviation = self.encode(x).chunk(2, -1)
        noise = torch.randn_like(mean)
        z = mean + log_deviation.exp() * noise
        prior = -(z.square() / 2).sum(-1)
        posterior = -(noise.square() / 2 + log_deviation).sum(-1)
        return log_bernoulli(x, self.decode(z)) + prior - posterior

    @torch.no_grad()
    def log_likelihood(self, x: Tensor) -> float:
        weights = torch.stack([self.log_weights(x) for _ in range(DRAWS)])
        return float((weights.logsumexp(0) - math.log(DRAWS)).mean())


def autoencoder(train: Tensor, test: Tensor, latent: int, rate: float, passes: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Autoencoder(latent)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    spent, points = 0.0, []
    for each in range(1, passes + 1):
        started = time.process_time()
        for rows in torch.randperm(len(train)).split(BATCH):
            optimizer.zero_grad()
            (-model.log_weights(train[rows]).mean()).backward()
            optimizer.step()
        spent += time.process_time() - started
        if each % max(1, passes // 20) == 0:
            points.append({"passes": each, "cpu_seconds": spent, "nats": model.log_likelihood(test)})
    best = max(points, key=lambda point: point["nats"])
    return {"latent": latent, "rate": rate, **best}


def main(quick: bool, out: Path | None) -> None:
    torch.set_num_threads(1)
    train, test = digits()
    found: dict[str, Any] = {"rows": [len(train), len(test)], "mixture": [], "autoencoder": []}
    mean = ((train.sum(0) + 0.5) / (len(train) + 1)).logit()
    found["independent"] = float(log_bernoulli(test, mean.expand_as(test)).mean())
    for components in (20,) if quick else (10, 20, 40, 80):
        started = time.process_time()
        nats = max(mixture(train, test, components, seed) for seed in range(3))
        seconds = (time.process_time() - started) / 3
        found["mixture"].append({"components": components, "nats": nats, "cpu_seconds": seconds})
        print(found["mixture"][-1], flush=True)
    for latent in (8,) if quick else (4, 8, 16):
        for rate in (1e-3,) if quick else (3e-4, 1e-3, 3e-3, 1e-2):
            found["autoencoder"].append(autoencoder(train, test, latent, rate, 20 if quick else 300))
            print(found["autoencoder"][-1], flush=True)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="where the record goes")
    arguments = parser.parse_args()
    main(arguments.quick, arguments.out)
