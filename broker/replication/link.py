"""The connection between two nodes: handshake with a shared secret, and messages.

    message  u8 kind | u32 bytes | u32 crc of the bytes | u32 crc of the three | bytes

A frame has a crc of its own, and none here.

Who accepts sends a challenge. Who connects answers with what it wants and a proof that it knows the secret, and gets a
proof in turn. Every message of the handshake is JSON after 32 bytes of proof. Encryption is TLS's.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import ssl
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, TypeAlias
from zlib import crc32

from leveret.broker.addresses import is_loopback
from leveret.broker.replication.frames import FRAME_MAX, VERSION

_HEAD: Final = struct.Struct("<BII")
_CRC: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _HEAD.size + _CRC.size
_PROOF_BYTES: Final = 32
#: Largest message of a handshake in bytes.
_HANDSHAKE_MAX: Final = 64 << 10
#: A frame may be larger than FRAME_MAX if one operation is.
_MESSAGE_MAX: Final = 4 * FRAME_MAX
_HANDSHAKE_SECONDS: Final = 5.0
_BUFFER: Final = 1 << 20
#: A link on which nothing comes is asked after 10 s, and is broken 15 s later without an answer.
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
#: Shortest message that is compressed, in bytes, and how hard: as fast as can be.
_PACKED_MIN: Final = 512
_LEVEL: Final = 1


class Message(IntEnum):
    """Kinds of messages."""

    HELLO = 1
    FRAME = 2
    ACKNOWLEDGEMENT = 3
    FILES = 4
    DATA = 5
    END = 6
    #: From a leader, how far its last operation is.
    LAG = 7
    #: From who follows, its use of resources.
    FIGURES = 8
    #: Another message, compressed: its kind, and its bytes as zlib makes them.
    PACKED = 9
    #: From a leader, whether the other node takes backups; from that, what its program says of them.
    BACKUP = 10


class LinkError(Exception):
    """The other side is not who it should be, or says something that it should not; the text says what."""


class Refused(LinkError):
    """The other node has refused the connection; the text is its reason."""


class Link:
    """An open connection.

    Args:
        reader: What comes in.
        writer: What goes out.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def is_full(self) -> bool:
        """Whether it has no room for more until drain() has returned, or is closed."""
        transport = self.writer.transport
        return transport.is_closing() or transport.get_write_buffer_size() > _BUFFER

    def send(self, kind: Message, octets: bytes = b"") -> None:
        """Send a message; drain() waits until there is room for more.

        Raises:
            OSError: The connection is closed.
        """
        if self.writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.writer.write(_head(kind, octets))
        if octets:
            self.writer.write(octets)

    def send_all(self, kind: Message, messages: Iterable[bytes]) -> None:
        """Send messages of a kind at once; see send()."""
        if self.writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.writer.write(b"".join([part for octets in messages for part in (_head(kind, octets), octets)]))

    async def send_packed(self, kind: Message, octets: bytes) -> None:
        """Send a message, compressed if that makes it shorter; a thread does that.

        Raises:
            OSError: The connection is closed.
        """
        if len(octets) > _PACKED_MIN:
            packed = await asyncio.get_running_loop().run_in_executor(None, zlib.compress, octets, _LEVEL)
            if len(packed) < len(octets):
                kind, octets = Message.PACKED, bytes((kind,)) + packed
        self.send(kind, octets)

    def send_json(self, kind: Message, value: object) -> None:
        """Send a message that is JSON."""
        self.send(kind, json.dumps(value).encode())

    async def drain(self) -> None:
        """Wait until there is room for more.

        Raises:
            OSError: The connection is broken.
        """
        await self.writer.drain()

    async def receive(self, limit: int = _MESSAGE_MAX) -> tuple[Message, bytes]:
        """Return the next message.

        Raises:
            LinkError: It is damaged, none of this version, or too long.
            OSError: The connection is broken.
            EOFError: It was closed.
        """
        head = await self.reader.readexactly(_HEAD_BYTES)
        kind, size, crc = _HEAD.unpack_from(head)
        if _CRC.unpack_from(head, _HEAD.size) != (crc32(head[: _HEAD.size]),):
            raise LinkError("a message is damaged: the checksum of its head is wrong")
        if size > limit:
            raise LinkError(f"a message of {size} bytes is too long")
        octets = await self.reader.readexactly(size)
        if kind != Message.FRAME and crc32(octets) != crc:
            raise LinkError("a message is damaged: its checksum is wrong")
        if kind == Message.PACKED:
            kind, octets = await asyncio.get_running_loop().run_in_executor(None, _unpack, octets, limit)
        try:
            return Message(kind), octets
        except ValueError:
            raise LinkError(f"a message is of unknown kind {kind}") from None

    async def expect(self, kind: Message, limit: int = _MESSAGE_MAX) -> bytes:
        """Return the next message, which must be of a kind; see receive()."""
        found, octets = await self.receive(limit)
        if found is not kind:
            raise LinkError(f"message {found.name} came instead of {kind.name}")
        return octets

    def close(self) -> None:
        """Close the connection, without what is not sent yet."""
        self.writer.transport.abort()


def _head(kind: Message, octets: bytes) -> bytes:
    head = _HEAD.pack(kind, len(octets), 0 if kind is Message.FRAME else crc32(octets))
    return head + _CRC.pack(crc32(head))


def _unpack(octets: bytes, limit: int) -> tuple[int, bytes]:
    """Return kind and bytes of a message that is compressed.

    Raises:
        LinkError: It is damaged, or too long.
    """
    packed = zlib.decompressobj()
    try:
        found = packed.decompress(octets[1:], limit + 1)
    except zlib.error as error:
        raise LinkError(f"a compressed message is damaged: {error}") from error
    if len(found) > limit or not packed.eof:
        raise LinkError("a compressed message is cut off or too long")
    return octets[0], found


#: Opens a connection to a host and port, with TLS or without.
Dial: TypeAlias = Callable[
    [str, int, "ssl.SSLContext | None"], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
]


async def dial(host: str, port: int, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection; see Dial."""
    return await asyncio.open_connection(host, port, limit=_BUFFER, ssl=tls)


async def connect(
    host: str, port: int, secret: str, wish: Mapping[str, Any], tls: ssl.SSLContext | None = None, dial: Dial = dial
) -> tuple[Link, dict[str, Any]]:
    """Connect to a node.

    Args:
        host: Its host.
        port: Its replication port.
        secret: The shared secret; empty without one.
        wish: What it is asked for, as JSON.
        tls: Encrypts the link; None for no encryption.
        dial: Opens the connection.
    Returns:
        The link, and the node's answer.
    Raises:
        Refused: It refuses.
        LinkError: It does not know the secret, or is of another version.
        OSError: It cannot be reached.
        EOFError: It has closed the connection.
    """
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        reader, writer = await dial(host, port, tls)
        link = Link(reader, writer)
        _keep_alive(writer)
        try:
            challenge = decode(await link.expect(Message.HELLO, _HANDSHAKE_MAX))
            if challenge.get("link") != VERSION:
                raise LinkError(
                    f"the node at {host}:{port} has another version of replication: {challenge.get('link')}"
                )
            theirs, ours = str(challenge["nonce"]), secrets.token_hex(16)
            asked = json.dumps({**wish, "nonce": ours, "link": VERSION}).encode()
            link.send(Message.HELLO, _proof(secret, "asks", theirs, asked) + asked)
            octets = await link.expect(Message.HELLO, _HANDSHAKE_MAX)
            proof, answer = octets[:_PROOF_BYTES], octets[_PROOF_BYTES:]
            answered = decode(answer)
            if "refused" in answered:
                raise Refused(str(answered["refused"]))
            if not hmac.compare_digest(proof, _proof(secret, "answers", ours, answer)):
                raise LinkError(f"the node at {host}:{port} has another replication.secret")
        except BaseException:
            link.close()
            raise
        return link, answered


async def accept(link: Link, secret: str, is_encrypted: bool) -> dict[str, Any]:
    """Return what a node that has connected wants; answer() answers it.

    Raises:
        LinkError: It does not know the secret, or is of another version.
        OSError: The connection is broken.
        EOFError: It was closed.
    """
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        _keep_alive(link.writer)
        nonce = secrets.token_hex(16)
        link.send_json(Message.HELLO, {"link": VERSION, "nonce": nonce})
        octets = await link.expect(Message.HELLO, _HANDSHAKE_MAX)
        proof, asked = octets[:_PROOF_BYTES], octets[_PROOF_BYTES:]
        peer = link.writer.get_extra_info("peername")
        if not secret and not is_encrypted and not (peer and is_loopback(peer[0])):
            raise await _refuse(link, "it is another machine: set replication.secret or replication.ssl_options")
        if not hmac.compare_digest(proof, _proof(secret, "asks", nonce, asked)):
            raise await _refuse(link, "it has another replication.secret")
        wish = decode(asked)
        if wish.get("link") != VERSION:
            raise await _refuse(link, f"it has version {wish.get('link')} of replication, not {VERSION}")
        return wish


def answer(link: Link, secret: str, wish: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
    """Answer what a node wants: accept it, or with a text `refused`, refuse it."""
    octets = json.dumps(answered).encode()
    link.send(Message.HELLO, _proof(secret, "answers", str(wish.get("nonce", "")), octets) + octets)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Notice that the other machine has vanished, of which nothing comes, not even an end."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        for level, name, value in _KEEPALIVE:
            sock.setsockopt(level, name, value)


async def _refuse(link: Link, reason: str) -> LinkError:
    """Tell a node, which has not proven who it is, that it is refused."""
    link.send(Message.HELLO, bytes(_PROOF_BYTES) + json.dumps({"refused": reason}).encode())
    with suppress(OSError):
        await link.drain()
        link.writer.close()
    return LinkError(reason)


def _proof(secret: str, side: str, nonce: str, octets: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"\0".join((side.encode(), nonce.encode(), octets)), "sha256")


def decode(octets: bytes) -> dict[str, Any]:
    """Return a message that is a JSON object.

    Raises:
        LinkError: It is none.
    """
    try:
        value = json.loads(octets)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise LinkError("a message is not a JSON object")
    return value
