"""Messages in memory before the window: found by number, at a cost that does not grow with their number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.stores.ram_messages import RamMessages
from tests.support.messages import message

END = 100
STEPS = st.lists(
    st.tuples(st.sampled_from(["keep", "drop", "drop stored", "clear", "find"]), st.integers(1, END - 1)), max_size=60
)


@given(STEPS)
def test_the_next_kept_message_is_found(steps: list[tuple[str, int]]) -> None:
    ram = RamMessages(END)
    kept: set[int] = set()
    for what, seq in steps:
        if what == "keep":
            if seq not in kept:
                ram.keep(seq, message(b"x"))
            kept.add(seq)
        elif what == "drop":
            ram.drop_kept([(seq, message(b"x"), True)])
            kept.discard(seq)
        elif what == "drop stored":
            ram.drop_stored(lambda number, _, least=seq: number >= least)  # type: ignore[misc]
            kept = {each for each in kept if each < seq}
        elif what == "clear":
            ram.clear(END)
            kept.clear()
        assert ram.next_kept(seq, END) == min((each for each in kept if each >= seq), default=END)
        assert ram.next_kept(1, END) == min(kept, default=END)
        assert (len(ram), ram.held_bytes) == (len(kept), len(kept))


@given(
    st.lists(
        st.one_of(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.tuples(st.integers(1, 5), st.integers(1, 6))),
        max_size=40,
    )
)
def test_the_bytes_in_memory_are_those_of_the_window(steps: list[list[int] | tuple[int, int]]) -> None:
    """A list appends bodies of these lengths; a pair takes messages: how many at most, and until how many bytes."""
    ram, waiting, seq = RamMessages(1), list[int](), 1
    for step in steps:
        if isinstance(step, list):
            ram.append(seq, [message("x" * length) for length in step], 1, sum(step), max(step))
            seq += len(step)
            waiting += step
        else:
            count, most = step
            expected: list[int] = []
            while waiting and len(expected) < count and sum(expected) < most:
                expected.append(waiting.pop(0))
            entries, taken = ram.take(count, most)
            assert [len(entry[1].body) for entry in entries] == expected
            assert taken == sum(expected)
        assert (len(ram), ram.held_bytes, ram.window_bytes) == (len(waiting), sum(waiting), sum(waiting))


def test_the_bytes_of_the_whole_window_are_all_its_messages() -> None:
    ram = RamMessages(1)
    ram.append(1, [message("x")] * 20, 1, 20)
    assert len(ram.oldest(20, 100)) == 20
    assert len(ram.oldest(20, 7)) == 7
    # Of a part, each message counts as one byte more.
    assert len(ram.oldest(19, 100)) == 10


def test_messages_that_come_back_again_and_again_take_no_more_memory() -> None:
    ram = RamMessages(END)
    for number in range(10_000):
        seq = 1 + number % 10
        ram.keep(seq, message(b"x"))
        ram.drop_kept([(seq, message(b"x"), True)])
    assert len(ram._kept_order) < 100


def test_finding_the_head_of_many_looks_at_few() -> None:
    class Counting(dict[int, object]):
        """Counts how many numbers are looked at."""

        looks = 0

        def __contains__(self, key: object) -> bool:
            Counting.looks += 1
            return super().__contains__(key)

        def __iter__(self):  # type: ignore[no-untyped-def]
            for key in super().__iter__():
                Counting.looks += 1
                yield key

    ram = RamMessages(5000)
    for seq in range(1, 5000):
        ram.keep(seq, message(b"x"))
    ram._kept = Counting(ram._kept)  # type: ignore[assignment]
    for seq in range(1, 5000):
        assert ram.next_kept(seq, 5000) == seq
        ram.drop_kept([(seq, message(b"x"), True)])
    assert Counting.looks < 15_000
