"""Batches that are sent ahead arrive whole and in their order, whatever the streams of a device do first."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from pretend_streams import Event, Stream, pretend_streams
from torch import Tensor

from harmonium.backends.sending import Sender

ORDERS = [*product(range(25), (0.0, 0.3, 0.8), (0.0, 0.5, 1.0))]  # seeds, how eager, whom to favour


def sent(monkeypatch: pytest.MonkeyPatch, order: tuple[int, float, float], updates: int = 9) -> list[int]:
    """The numbers that an update finds in its batch, in the order of the updates."""
    found: list[int] = []
    with pretend_streams(monkeypatch, *order) as streams:
        sender = Sender(lambda step, batch: batch.fill_(step), (3,), torch.float32, torch.device("cpu"))
        batch = torch.zeros(3)
        for step in range(updates):
            sender.receive(step, batch)
            streams.later(lambda: found.append(int(batch.sum()) // 3 if batch[0] == batch[2] else -1))
            if step + 1 < updates:
                sender.send(step + 1)
        streams.finish()
    return found


def test_every_order_that_events_allow_brings_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(sent(monkeypatch, order) == [*range(9)] for order in ORDERS)


@pytest.mark.parametrize("forgotten", ["arrival", "departure", "reception"])
def test_the_test_finds_a_forgotten_event(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is used before it has come, or its place written over before it has left or was received."""
    if forgotten == "departure":
        monkeypatch.setattr(Event, "synchronize", lambda event: None)
    else:
        wait = Stream.wait_event
        beside = forgotten == "reception"

        def forgetful(stream: Stream, event: Event) -> None:
            if (stream is Event.streams.beside) is not beside:
                wait(stream, event)

        monkeypatch.setattr(Stream, "wait_event", forgetful)
    assert not all(sent(monkeypatch, order) == [*range(9)] for order in ORDERS)


def test_a_batch_that_is_not_the_next_one_is_sent_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches, batch = [], torch.zeros(2)
    with pretend_streams(monkeypatch) as streams:
        sender = Sender(lambda step, batch: batch.fill_(step), (2,), torch.uint8, torch.device("cpu"))
        for step in (0, 5, 6, 2):
            sender.receive(step, batch)
            streams.later(lambda: batches.append(batch.tolist()))
            sender.send(step + 1)
        streams.finish()
    assert batches == [[0, 0], [5, 5], [6, 6], [2, 2]]


def test_without_streams_copies_come_in_their_order() -> None:
    rows = torch.arange(8).view(4, 2)

    def fill(step: int, batch: Tensor) -> None:
        torch.index_select(rows, 0, torch.tensor([step]), out=batch)

    sender, batch = Sender(fill, (1, 2), torch.int64, torch.device("cpu")), torch.zeros(1, 2)
    for step in range(3):
        sender.receive(step, batch)
        sender.send(step + 1)
        assert batch.tolist() == [[2.0 * step, 2.0 * step + 1]]
