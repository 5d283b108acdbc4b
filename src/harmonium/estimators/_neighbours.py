"""Labels that rows get from the rows near them."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from harmonium.estimators._intake import Array

Codes = NDArray[np.int64]

_NEIGHBOURS = 10  # of a row, as Calder et al. (2020) take on images
_DECIMALS = 6  # to which rows that are equal have equal points: their products may be summed in other orders
_ANYWHERE = 0.01  # of a row's weight: its edges to all rows, so that none is out of reach
_TOLERANCE, _ITERATIONS = 1e-6, 1000  # of conjugate gradients, which need tens
_FOLDS = 5  # of the labels, each held out once


@final
class Neighbours:
    """The graph of nearest neighbours of some rows.

    Edges have weights in [0, 1], by distances relative to the farthest neighbours of both rows (Zelnik-Manor
    & Perona 2004), so that the graph is as dense where rows are sparse. Equal rows are one node: a row with
    more copies than neighbours would have no edge to others.

    Args:
        points: (rows, columns), not all equal; near in Euclidean distance are rows that are alike.
    """

    def __init__(self, points: Array) -> None:
        self._points = points
        nodes, node = np.unique(points.round(_DECIMALS), axis=0, return_inverse=True)
        self._node = node.ravel()
        count = len(nodes)
        near = min(_NEIGHBOURS, count - 1)
        distance, which = NearestNeighbors(n_neighbors=near, algorithm="brute").fit(nodes).kneighbors()
        reach = distance[:, -1]
        weight = np.exp(-(distance**2) / (reach[:, None] * reach[which]))
        edges = csr_matrix((weight.ravel(), (np.arange(count).repeat(near), which.ravel())), (count, count))
        edges = edges.maximum(edges.T)
        self._edges = edges / (edges.sum() / count)
        self._scale = (np.asarray(self._edges.sum(1)).ravel() + _ANYWHERE) ** -0.5

    def labels(self, codes: Codes) -> Codes:
        """Returns the labels of all rows, given those of some.

        Poisson learning (Calder, Cook, Thorpe & Slepčev 2020): with L the graph's Laplacian, the
        scores u of a class solve L u = b, where b is label minus mean label at the rows that have one and 0
        elsewhere; the class of a row is that of its largest score. Harmonic functions are all but constant
        away from few labels, and these scores are not: one label a class will do.
        """
        given = codes >= 0
        classes = np.unique(codes[given])
        source = (codes[:, None] == classes).astype(np.float64)
        source[given] -= source[given].mean(0)
        count = len(self._scale)
        operator = LinearOperator((count, count), matvec=self._laplacian, dtype=np.float64)
        scores = []
        for b in source.T:
            at_nodes = self._scale * np.bincount(self._node, b, count)
            scores.append(self._scale * cg(operator, at_nodes, rtol=_TOLERANCE, maxiter=_ITERATIONS)[0])
        return np.where(given, codes, classes[np.argmax(scores, 0)][self._node])

    def know(self, codes: Codes) -> bool:
        """Returns whether neighbours predict held-out labels about as well as the points do.

        The points are read by logistic regression on standardised columns, which must be ahead by more than a
        standard error of the difference to be preferred. Every class keeps a label: where none has two,
        neighbours are used.
        """
        fold = np.full(len(codes), -1)
        for code in np.unique(codes[codes >= 0]):
            rows = np.flatnonzero(codes == code)[1:]
            fold[rows] = np.arange(len(rows)) % _FOLDS
        points, ahead = StandardScaler().fit_transform(self._points), list[Array]()
        for k in np.unique(fold[fold >= 0]):
            out = fold == k
            kept = np.where(out, -1, codes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                read = LogisticRegression().fit(points[kept >= 0], codes[kept >= 0])
            told = read.predict(points[out]) == codes[out]
            ahead.append(told.astype(np.float64) - (self.labels(kept)[out] == codes[out]))
        difference = np.concatenate([*ahead, np.zeros(1)])
        return bool(difference.sum() <= np.sqrt((difference**2).sum()))

    def _laplacian(self, u: Array) -> Array:
        """Multiplies by the normalised Laplacian with edges between all rows, of eigenvalues in [0, 2]."""
        v = self._scale * u.ravel()
        result: Array = u.ravel() - self._scale * (self._edges @ v + _ANYWHERE * v.mean())
        return result


def from_neighbours(points: Array, label: Tensor, *, always: bool) -> Tensor:
    """Returns labels, the missing ones from neighbours: ``always``, or where these predict well (``know``).

    Both are states of a label layer, (rows, classes), NaN where missing; ``points`` as of ``Neighbours``.
    """
    given = ~label.isnan().any(1).cpu()
    codes = np.where(given.numpy(), label.nan_to_num().argmax(1).cpu().numpy(), -1)
    one = len(np.unique(codes[codes >= 0])) < 2 or not np.ptp(points.round(_DECIMALS), axis=0).any()
    if given.all() or one:
        return label
    neighbours = Neighbours(points)
    if not (always or neighbours.know(codes)):
        return label
    return torch.nn.functional.one_hot(torch.from_numpy(neighbours.labels(codes)), label.shape[1]).to(label)
