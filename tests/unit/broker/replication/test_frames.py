"""Frames: what is packed is unpacked again, and nothing else is taken for a frame."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.frames import FrameError, pack_frames, unpack_frame
from leveret.storage.disk.recording import Kind, Operation

OPERATIONS = st.lists(
    st.builds(
        Operation,
        st.sampled_from(Kind),
        st.text("abc/é…", max_size=20),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=50),
    ),
    min_size=1,
    max_size=20,
)


@given(operations=OPERATIONS, epoch=st.integers(1, 2**64 - 1), first=st.integers(1, 2**60), limit=st.integers(60, 900))
def test_what_is_packed_is_unpacked(operations: list[Operation], epoch: int, first: int, limit: int) -> None:
    frames = [unpack_frame(frame.octets) for frame in pack_frames(epoch, first, operations, limit)]
    assert [each for frame in frames for each in frame.operations()] == operations
    assert {frame.epoch for frame in frames} == {epoch}
    assert [frame.first for frame in frames] == [first, *(frame.last + 1 for frame in frames[:-1])]


def test_any_damaged_byte_is_noticed() -> None:
    (frame,) = pack_frames(3, 7, [Operation(Kind.APPEND, "q/1/x", 48, b"body"), Operation(Kind.SYNC, "q/1/x")])
    for at in range(len(frame.octets)):
        damaged = bytearray(frame.octets)
        damaged[at] ^= 1
        with pytest.raises(FrameError):
            unpack_frame(bytes(damaged))
    with pytest.raises(FrameError):
        unpack_frame(frame.octets[:-1])


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_a_backlog_gives_frames_until_they_are_too_old(tmp_path: Path, memory: int) -> None:
    backlog = Backlog(tmp_path / "backlog", 10_000, memory)
    frames = [
        next(pack_frames(1, 1 + 2 * at, [Operation(Kind.SYNC, "x"), Operation(Kind.APPEND, "x", 0, bytes(1000))]))
        for at in range(30)
    ]
    for frame in frames[:5]:
        backlog.add(frame)
    assert [backlog.after(frame.first - 1) for frame in frames[:5]] == frames[:5]
    with pytest.raises(FrameError):
        backlog.after(1)
    for frame in frames[5:]:
        backlog.add(frame)
    assert backlog.after(58) == frames[-1]
    if memory == 1:
        # The one file is dropped as a whole.
        assert backlog.after(0) is None
    backlog.close()
    assert not (tmp_path / "backlog").exists()
