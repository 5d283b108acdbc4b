"""Work that compiled code shares out among torch's threads."""

from __future__ import annotations

import threading

import pytest
import torch

from harmonium.compiled.serving import share_out


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_share_is_done_once_and_this_thread_takes_part(threads):
    done = []
    share_out(lambda share: done.append((share, threading.current_thread())), 7)
    assert sorted(share for share, _ in done) == list(range(7))
    assert dict(done)[0] is threading.current_thread()
    assert len({thread for _, thread in done}) <= threads


@pytest.mark.parametrize("failing", [0, 1])
def test_a_share_that_fails_fails_when_all_others_are_done(threads, failing):
    done = []

    def work(share):
        if share == failing:
            raise RuntimeError(f"share {share}")
        done.append(share)

    with pytest.raises(RuntimeError, match=f"share {failing}"):
        share_out(work, 4)
    others = {share for share in range(4) if share % min(threads, 4) != failing % min(threads, 4)}
    assert others <= set(done)
