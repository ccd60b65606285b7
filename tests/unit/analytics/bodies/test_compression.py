from __future__ import annotations

import bz2
import gzip
import lzma
import zlib

import pamqp.encode
import pyarrow as pa
import pytest
from kombu.compression import compress

from leveret.analytics.bodies.payloads import compressions_in, decompress

BODY = b'{"a": 1}' * 20


def raw_deflate(octets: bytes) -> bytes:
    return zlib.compress(octets, wbits=-15)


def of_arrow(codec: str, octets: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(octets)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def run(body: bytes, encoding: str | None, headers: bytes | None = None) -> tuple[bytes | None, str, str]:
    """What one body becomes beside one that is as it is."""
    found = decompress(
        pa.array([b"plain", body], pa.binary()),
        pa.array([None, encoding], pa.string()),
        compressions_in(pa.array([None, headers], pa.binary())),
    )
    first, second = found.octets.to_pylist()
    assert first == b"plain"
    return second, found.charsets.get(1, ""), found.reasons.get(1, "")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("X-GZip", gzip.compress(BODY, mtime=0)),
        ("gzip", zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("bz2", bz2.compress(BODY)),
        ("xz", lzma.compress(BODY)),
        ("zstd", of_arrow("zstd", BODY)),
        ("br", of_arrow("brotli", BODY)),
        ("deflate, gzip", gzip.compress(zlib.compress(BODY), mtime=0)),
        ("utf-8", BODY),
        ("binary", BODY),
        (None, BODY),
        ("something else", BODY),
    ],
)
def test_content_encodings(encoding: str | None, body: bytes) -> None:
    assert run(body, encoding) == (BODY, "", "")


@pytest.mark.parametrize("method", ["gzip", "zlib", "bzip2", "lzma"])
def test_the_header_that_kombu_sets(method: str) -> None:
    compressed, name = compress(BODY, method)
    headers = pamqp.encode.field_table({"id": "x", "compression": name, "retries": 0})[4:]
    assert run(compressed, "utf-8", headers) == (BODY, "", "")
    other = pamqp.encode.field_table({"compression": "none of these"})[4:]
    assert run(BODY, "utf-8", other) == (BODY, "", "")


def test_character_encodings() -> None:
    assert run(BODY, "ISO-8859-1") == (BODY, "iso-8859-1", "")
    assert run(gzip.compress(BODY), "utf-16, gzip") == (BODY, "utf-16", "")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "bz2", "xz", "zstd", "br", "base64"])
@pytest.mark.parametrize("damaged", [b"", b"{}", b"\x07" * 30])
def test_what_cannot_be_decompressed(encoding: str, damaged: bytes) -> None:
    octets, _, reason = run(damaged, encoding)
    if octets is not None:
        assert (octets, damaged) == (b"", b""), "only nothing can be nothing"
        assert encoding in ("zstd", "br", "base64")
    else:
        assert reason.startswith(f"it cannot be decompressed ({encoding}): ")


def test_a_cut_or_huge_body() -> None:
    assert run(gzip.compress(BODY)[:-9], "gzip")[2] == "it cannot be decompressed (gzip): its end is missing"
    for codec, name in (("zstd", "zstd"), ("brotli", "br")):
        octets, _, reason = run(of_arrow(codec, BODY)[:-3], name)
        assert octets is None
        assert "cannot be decompressed" in reason
    huge = gzip.compress(bytes(134_217_729), 1)
    assert run(huge, "gzip") == (None, "", "decompressed (gzip), it has more than 134217728 bytes")
