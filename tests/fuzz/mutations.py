"""Ways to spoil a session."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz.sessions import Step

#: Changes the frames of one step in place; returns what it did, to explain a failure.
Mutation = Callable[[Step, Random], str]


def flip_bit(frames: Step, random: Random) -> str:
    """Turn one bit over."""
    which = random.randrange(len(frames))
    at, bit = random.randrange(len(frames[which])), random.randrange(8)
    octets = bytearray(frames[which])
    octets[at] ^= 1 << bit
    frames[which] = bytes(octets)
    return f"flip bit {bit} of byte {at} in frame {which}"


def set_byte(frames: Step, random: Random) -> str:
    """Put another byte in place of one, often one that means something."""
    which = random.randrange(len(frames))
    at = random.randrange(len(frames[which]))
    value = random.choice((0, 1, 127, 128, 255, 0xCE, random.randrange(256)))
    octets = bytearray(frames[which])
    octets[at] = value
    frames[which] = bytes(octets)
    return f"set byte {at} in frame {which} to {value}"


def cut(frames: Step, random: Random) -> str:
    """Take some bytes out of a frame."""
    which = random.randrange(len(frames))
    start, size = random.randrange(len(frames[which])), random.choice((1, 2, 4, 8, 100))
    frames[which] = frames[which][:start] + frames[which][start + size :]
    return _keep(frames, which, f"cut {size} bytes at {start} out of frame {which}")


def insert(frames: Step, random: Random) -> str:
    """Put some bytes into a frame."""
    which = random.randrange(len(frames))
    at, octets = random.randrange(len(frames[which]) + 1), random.randbytes(random.choice((1, 2, 4, 8, 100)))
    frames[which] = frames[which][:at] + octets + frames[which][at:]
    return f"insert {octets.hex()} at {at} into frame {which}"


def repeat_bytes(frames: Step, random: Random) -> str:
    """Send some bytes of a frame twice."""
    which = random.randrange(len(frames))
    start, size = random.randrange(len(frames[which])), random.choice((1, 4, 8, 20))
    piece = frames[which][start : start + size]
    frames[which] = frames[which][: start + size] + piece + frames[which][start + size :]
    return f"repeat {size} bytes at {start} in frame {which}"


def repeat_frame(frames: Step, random: Random) -> str:
    """Send a frame twice."""
    which = random.randrange(len(frames))
    frames.insert(random.randrange(len(frames) + 1), frames[which])
    return f"repeat frame {which}"


def drop_frame(frames: Step, random: Random) -> str:
    """Leave a frame out."""
    which = random.randrange(len(frames))
    frames[which] = b""
    return _keep(frames, which, f"drop frame {which}")


def swap_frames(frames: Step, random: Random) -> str:
    """Send two frames in each other's place."""
    first, second = random.randrange(len(frames)), random.randrange(len(frames))
    frames[first], frames[second] = frames[second], frames[first]
    return f"swap frames {first} and {second}"


def change_size(frames: Step, random: Random) -> str:
    """Let a frame claim another payload size."""
    which = random.randrange(len(frames))
    octets = bytearray(frames[which])
    if len(octets) < 8:
        return insert(frames, random)
    size = int.from_bytes(octets[3:7], "big")
    claimed = random.choice((0, 1, size - 1, size + 1, size * 2, 131_064, 131_072, 131_073, 2**31, 2**32 - 1))
    octets[3:7] = min(max(claimed, 0), 2**32 - 1).to_bytes(4, "big")
    frames[which] = bytes(octets)
    return f"let frame {which} claim {claimed} bytes instead of {size}"


def change_inner_size(frames: Step, random: Random) -> str:
    """Spoil four bytes in a row inside a payload, as the length of a string or table, or a body size."""
    which = random.randrange(len(frames))
    octets = bytearray(frames[which])
    if len(octets) < 16:
        return flip_bit(frames, random)
    at = random.randrange(7, len(octets) - 4)
    value = random.choice((0, 1, 255, 65_535, 2**31 - 1, 2**31, 2**32 - 1))
    octets[at : at + 4] = value.to_bytes(4, "big")
    frames[which] = bytes(octets)
    return f"write {value} at {at} in frame {which}"


def change_channel(frames: Step, random: Random) -> str:
    """Send a frame on another channel."""
    which = random.randrange(len(frames))
    octets = bytearray(frames[which])
    if len(octets) < 8:
        return insert(frames, random)
    octets[1:3] = random.choice((0, 1, 2, 3, 65_535)).to_bytes(2, "big")
    frames[which] = bytes(octets)
    return f"send frame {which} on channel {int.from_bytes(octets[1:3], 'big')}"


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bit,
    set_byte,
    cut,
    insert,
    repeat_bytes,
    repeat_frame,
    drop_frame,
    swap_frames,
    change_size,
    change_inner_size,
    change_channel,
)


def mutate(steps: list[Step], spared: int, random: Random) -> list[str]:
    """Spoil a session in one to four places."""
    done = []
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        which = random.randrange(spared, len(steps))
        if any(steps[which]):
            done.append(f"step {which}: {random.choice(MUTATIONS)(steps[which], random)}")
    return done


def _keep(frames: Step, which: int, done: str) -> str:
    """Take a frame out that has nothing left, unless it is the only one of its step."""
    if not frames[which] and len(frames) > 1:
        del frames[which]
    return done
