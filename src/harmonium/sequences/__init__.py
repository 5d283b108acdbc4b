"""Sequences: aligned proteins, RNA and DNA, and how much each of them counts.

- :func:`read_alignment` and :func:`write_fasta` go between files and an
  :class:`Alignment` of codes.
- :func:`similarity_weights` weighs sequences by how many are like them; :func:`split_by_similarity` holds
  some out that are like none of the others.
- :func:`single_mutants` names mutants as tables of mutational scans do.
- ``tasks.contacts`` and ``tasks.mutations`` read a machine that has learned them.
"""

from harmonium.sequences.alignment import (
    ALPHABETS as ALPHABETS,
    READINGS as READINGS,
    Alignment as Alignment,
    find_alphabet as find_alphabet,
)
from harmonium.sequences.files import (
    SUFFIXES as SUFFIXES,
    align as align,
    number_letters as number_letters,
    read_alignment as read_alignment,
    spell as spell,
    write_fasta as write_fasta,
)
from harmonium.sequences.mutants import (
    Mutants as Mutants,
    find_sequence as find_sequence,
    first_number as first_number,
    mutate as mutate,
    single_mutants as single_mutants,
)
from harmonium.sequences.similarity import (
    similarity_weights as similarity_weights,
    split_by_similarity as split_by_similarity,
)
