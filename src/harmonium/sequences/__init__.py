"""Sequences: aligned proteins, RNA and DNA, and how much each of them counts.

- :func:`read_fasta`, :func:`read_stockholm` and :func:`write_fasta` go between files and an
  :class:`Alignment` of codes.
- :func:`similarity_weights` weighs sequences by how many are like them; :func:`split_by_similarity` holds
  some out that are like none of the others.
- ``tasks.contacts`` and ``tasks.mutations`` read a machine that has learned them.
"""

from harmonium.sequences.alignment import ALPHABETS, READINGS, Alignment, find_alphabet
from harmonium.sequences.files import STOCKHOLM, SUFFIXES, read_fasta, read_stockholm, write_fasta
from harmonium.sequences.similarity import similarity_weights, split_by_similarity

__all__ = [
    "ALPHABETS",
    "READINGS",
    "STOCKHOLM",
    "SUFFIXES",
    "Alignment",
    "find_alphabet",
    "read_fasta",
    "read_stockholm",
    "similarity_weights",
    "split_by_similarity",
    "write_fasta",
]
