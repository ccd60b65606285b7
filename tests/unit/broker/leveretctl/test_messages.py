"""Conditions and keys of messages, as people and Spark write them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.leveretctl.command_errors import DATA, UsageFault
from leveret.broker.leveretctl.commands.messages import MessageKey, read_conditions, read_keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("routing_key=order.*", {"routing_key": "order.*"}),
        ("exchange=", {"exchange": ""}),
        ("queue=a=b", {"queue": "a=b"}),
        ("reason=maxlen\nexchange=x", {"reason": "maxlen", "exchange": "x"}),
        ("header.n=5", {"headers": {"n": 5}}),
        ("header.n=true\nheader.s=five", {"headers": {"n": True, "s": "five"}}),
        ('header.s="5"', {"headers": {"s": "5"}}),
        ('{"routing_key":"a","headers":{"n":1}}', {"routing_key": "a", "headers": {"n": 1}}),
        ('{"routing_key":"a"}\nreason=expired', {"routing_key": "a", "reason": "expired"}),
    ],
)
def test_read(text: str, expected: dict[str, Any]) -> None:
    assert read_conditions(text) == expected


@pytest.mark.parametrize("text", ["a", "colour=red", "header.=1", "=1", "{", '{"a"}', "reason"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="--filter") as caught:
        read_conditions(text)
    assert caught.value.status == DATA


HEADER = "queue_id,store_priority,seq\n"


def read(path: Path | str, stdin: str = "") -> list[tuple[int, ...]]:
    return [tuple(key) for key in read_keys(str(path), io.StringIO(stdin))]


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{HEADER}7,0,1\n7,4,9223372036854775807\n")
    assert read(tmp_path / "keys") == [(7, 0, 1), (7, 4, (1 << 63) - 1)]


def test_other_columns_and_another_order(tmp_path: Path) -> None:
    text = '\ufeffseq,queue,store_priority,queue_id,reason\r\n3,"a\r\nb",0,7,"x,y"\r\n'
    (tmp_path / "keys").write_text(text, encoding="utf-8", newline="")
    assert read(tmp_path / "keys") == [(7, 0, 3)]


def test_json_lines() -> None:
    text = '{"queue_id":7,"store_priority":0,"seq":1,"queue":"q"}\n\n{"seq":"2","store_priority":0,"queue_id":7}\n'
    assert read("-", text) == [MessageKey(7, 0, 1), MessageKey(7, 0, 2)]


def test_standard_input() -> None:
    assert read("-", f"{HEADER}7,0,1\n") == [(7, 0, 1)]


@pytest.mark.parametrize("text", ["", HEADER, "\n"])
def test_nothing(text: str) -> None:
    if text == "\n":
        with pytest.raises(ValueError, match="standard input, line 1: the header does not name queue_id and"):
            read("-", text)
    else:
        assert read("-", text) == []


def test_what_spark_writes(tmp_path: Path) -> None:
    (tmp_path / "part-00000.csv").write_text(f"{HEADER}7,0,1\n")
    (tmp_path / "part-00001.csv").write_text("")
    (tmp_path / "part-00002.csv").write_text(f"{HEADER}7,0,2\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-00000.csv.crc").write_bytes(b"crc\0\xff")
    assert read(tmp_path) == [(7, 0, 1), (7, 0, 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7,0,1\n", "line 1: the header does not name queue_id and store_priority and seq"),
        ("queue_id,seq\n7,1\n", "line 1: the header does not name store_priority"),
        (f"{HEADER}7,0,1\n7,0\n", "line 3: seq is null"),
        (f"{HEADER}7,0,x\n", 'line 2: seq is "x"'),
        (f"{HEADER}7,0,-1\n", 'line 2: seq is "-1"'),
        (f"{HEADER}7,256,1\n", 'line 2: store_priority is "256"'),
        (f"{HEADER}7,0,9223372036854775808\n", 'line 2: seq is "9223372036854775808"'),
        (f"{HEADER}7,0,1.5\n", 'line 2: seq is "1.5"'),
        (f"{HEADER}7,0,٣\n", "line 2: seq is"),
        ('{"queue_id":7,"store_priority":0}\n', "line 1: seq is null"),
        ('{"queue_id":7,"store_priority":0,"seq":true}\n', "line 1: seq is true"),
        ('{"queue_id":7,"store_priority":0,"seq":1}\n[1]\n', "line 2: not a JSON object"),
        ('{"queue_id":7\n', "line 1: not a JSON object"),
    ],
)
def test_what_is_no_key(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^standard input, {expected}"):
        read("-", text)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "keys.parquet").write_bytes(b"PAR1\x15\x04\xff\xfe")
    with pytest.raises(ValueError, match=r"keys\.parquet is neither CSV nor JSON lines"):
        read(tmp_path / "keys.parquet")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "keys")
