"""What fields in tf32 and bf16 do to the distribution that chains sample, measured on a CPU.

    python experiments/precision.py

With discrete units the chains follow the distribution of the machine with rounded couplings, exactly: both
distributions are enumerated, by the states of the hidden units or of the visible ones, and compared.
"truncated" cuts off the digits that "tf32" rounds, as some matrix units do. Of a Gaussian machine the visible
states are rounded too, and the distribution is that of no machine: long chains are compared with its
enumerated moments.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
import torch

import harmonium as hm
from harmonium.backends.rounding import rounded

WAYS = ("tf32", "truncated", "bf16")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=None, help="a JSON record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    bars = torch.as_tensor(np.asarray(hm.data.read("bars-and-stripes").samples), dtype=torch.float32)
    digits = (torch.as_tensor(np.asarray(hm.data.read("digits").samples)) > 0.5).float()
    record: dict[str, object] = {}
    for name, X, hidden, rate in (("bars and stripes", bars, 16, 0.1), ("digits", digits, 14, 0.05)):
        machine = hm.BoltzmannMachine([hm.Bernoulli(X.shape[1]), hm.Bernoulli(hidden)], seed=0)
        hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
        rule = hm.rules.centred(hm.rules.pcd(1, chains=100))
        hm.train(
            machine,
            X,
            rule=rule,
            updates=arguments.updates,
            batch_size=100,
            learning_rate=rate,
            progress=False,
        ).whole()
        record[name] = discrete(machine)
        print(name, json.dumps(record[name], indent=1), flush=True)
    machine = hm.BoltzmannMachine([hm.Gaussian(16), hm.Bernoulli(8)], seed=0)
    hm.machine.normal_(machine, 0.4, seed=1)
    record["gaussian"] = gaussian(machine, arguments.chains)
    print("gaussian", json.dumps(record["gaussian"], indent=1), f"{time.process_time() - started:.0f} CPU s")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


def cut(way: str, W: torch.Tensor) -> torch.Tensor:
    if way != "truncated":
        return rounded(way, W)
    return (W.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32)


def hidden_distribution(machine: hm.BoltzmannMachine) -> tuple[torch.Tensor, torch.Tensor]:
    """The hidden states and their probabilities, in float64."""
    machine = machine.double()
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * machine.layers[1].width)
    seen = torch.zeros(len(states), machine.layers[0].width, dtype=torch.float64)
    return states, (-machine.free_energy([seen, states], summed=[0])).softmax(0)


def discrete(machine: hm.BoltzmannMachine) -> dict[str, object]:
    """Between the distributions of the hidden units, and between the means of the visible ones."""
    found: dict[str, object] = {"largest_weight": float(machine.couplings[0].weight.detach().abs().max())}
    states, p = hidden_distribution(copy.deepcopy(machine))
    W, b = machine.couplings[0].weight.detach(), machine.layers[0].bias.detach().double()
    means = p @ (b + states @ W.double().t()).sigmoid()
    for way in WAYS:
        other = copy.deepcopy(machine)
        with torch.no_grad():
            other.couplings[0].weight.copy_(cut(way, W))
        _, q = hidden_distribution(other)
        moved = q @ (b + states @ cut(way, W).double().t()).sigmoid()
        found[way] = {
            "total_variation": float((p - q).abs().sum() / 2),
            "kl_nats": float((p * (p / q).log()).sum()),
            "largest_error_of_a_mean": float((means - moved).abs().max()),
        }
    return found


def gaussian(machine: hm.BoltzmannMachine, chains: int) -> dict[str, object]:
    """E[h] of chains against enumeration; what float32 has is chance."""
    states, p = hidden_distribution(copy.deepcopy(machine))
    exact, found = p @ states, dict[str, object]()
    for name in hm.backends.PRECISIONS:
        total = torch.zeros(8, dtype=torch.float64)

        def observe(
            number: int, state: hm.chains.KernelState, info: hm.chains.Info, total: torch.Tensor = total
        ) -> None:
            if number > 50:
                total += machine.hamiltonian().mean(1, state.fields[1]).detach().double().mean(0)

        with hm.backends.precision(name):
            start = machine.random_states(chains, seed=2)
            hm.chains.run(machine, hm.chains.Gibbs(), start, 150, seed=3, observer=observe)
        error = float((total / 100 - exact).abs().max())
        found[name] = {"largest_error_of_a_mean": error}
    return found


if __name__ == "__main__":
    main()
