"""A restricted Boltzmann machine trained by hand, with the public pieces of harmonium and a loop of our own.

The gradient of the mean log-likelihood is E[S | v] - E[S]: the expected statistics of the machine with its
visible units clamped to data, minus those of the machine running free. Persistent chains estimate the second.
"""

import torch

import harmonium as hm
from harmonium.learning import pullback
from harmonium.machine import Statistics

UPDATES, CHAINS, LEARNING_RATE = 2000, 100, 0.1
torch.set_num_threads(1)

# All 4 x 4 pictures made of full columns (bars) or of full rows (stripes): 32 rows of 16 binary pixels.
X = torch.from_numpy(hm.data.bars_and_stripes(4))

# Two layers of binary units, joined by couplings; both layers and couplings are torch parameters.
machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(16)], seed=0)
generator = torch.Generator().manual_seed(1)
chains = machine.random_states(CHAINS, seed=generator)


def mean_log_likelihood() -> float:
    """Exact: the 2^16 states of the hidden layer are enumerated for ln Z."""
    log_partition = hm.likelihood.exact_log_partition(machine)
    return hm.likelihood.log_likelihood(machine, X, log_partition).mean().item()


before = mean_log_likelihood()
for _ in range(UPDATES):
    hamiltonian = machine.hamiltonian()
    hidden = hamiltonian.graph.summed  # the hidden layer is summed out exactly given the visible one
    chains = hm.chains.run(machine, hm.chains.Gibbs(), chains, sweeps=1, seed=generator)

    difference = Statistics(hamiltonian)
    with torch.no_grad():
        difference.add(hamiltonian, [X, X], weight=1 / len(X), summed=hidden)  # clamped: E[S | v]
        difference.add(hamiltonian, chains, weight=-1 / CHAINS, summed=hidden)  # free: E[S]
    gradient = pullback(machine, difference)  # by the names of the machine's parameters

    with torch.no_grad():
        for name, parameter in machine.named_parameters():
            parameter.add_(gradient[name], alpha=LEARNING_RATE)

after = mean_log_likelihood()
print(f"mean log-likelihood before: {before:8.3f} nats")
print(f"mean log-likelihood after:  {after:8.3f} nats (at best -3.379, the data's negative entropy)")
if not before + 3 < after <= -3.379:
    raise SystemExit("the log-likelihood did not rise as it should")
