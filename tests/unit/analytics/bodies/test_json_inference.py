from __future__ import annotations

import pytest

from leveret.analytics.bodies.json_bodies import load_json
from leveret.analytics.bodies.json_values import infer_type
from leveret.analytics.bodies.value_types import type_ddl


@pytest.mark.parametrize(
    ("bodies", "ddl"),
    [
        ([], "string"),
        (["null"], "string"),
        (['{"a": 1}', '{"b": true}', '{"a": null}'], "struct<`a`: bigint, `b`: boolean>"),
        (['{"a": 1}', '{"a": 1.5}'], "struct<`a`: double>"),
        (['{"a": 1}', '{"a": "x"}'], "struct<`a`: string>"),
        (['{"a": 1}', '{"a": {"b": 1}}'], "struct<`a`: string>"),
        (['{"a": 1}', '{"a": [1]}'], "struct<`a`: string>"),
        (['{"a": true}', '{"a": 1}'], "struct<`a`: string>"),
        (['{"a": 9223372036854775808}'], "struct<`a`: string>"),
        (['{"a": ' + "9" * 5000 + "}"], "struct<`a`: string>"),
        (['{"a": 1e400, "b": 1.0, "c": NaN}'], "struct<`a`: double, `b`: double, `c`: double>"),
        (['{"a": {}}', '{"a": null, "b": []}'], "struct<`a`: string, `b`: array<string>>"),
        (['{"a": {"b": null}}', '{"a": {"c": [{"d": 1}, {"e": "x"}]}}'],
         "struct<`a`: struct<`b`: string, `c`: array<struct<`d`: bigint, `e`: string>>>>"),
        # One text, or one array, does not make a text of what are objects.
        (['"x"', '{"a": 1}', "[1]", "2"], "struct<`a`: bigint>"),
        (["1", "[2]"], "array<bigint>"),
        (["1", "2.5"], "double"),
        (['[1, "x", {"a": 1}]'], "struct<`_1`: bigint, `_2`: string, `_3`: struct<`a`: bigint>>"),
        (['[1, "x"]', '[1, "x", 2]'], "array<string>"),
        (['["a", "b"]', '["c", null]'], "array<string>"),
        (['[{"a": 1}, {"b": 1}]'], "array<struct<`a`: bigint, `b`: bigint>>"),
        (["{" + ",".join(f'"{n}": {{"v": {n}}}' for n in range(201)) + "}"], "map<string, struct<`v`: bigint>>"),
        (["[" * 100 + "]" * 100], "array<" * 21 + "string" + ">" * 21),
    ],
)  # fmt: skip
def test_types(bodies: list[str], ddl: str) -> None:
    assert type_ddl(infer_type(load_json(body.encode()) for body in bodies)) == ddl


def test_celery() -> None:
    embed = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'
    bodies = [f'[[1, "x"], {{}}, {embed}]', f'[[], {{"order": 7, "lines": [1.5]}}, {embed}]']
    assert type_ddl(infer_type(load_json(body.encode()) for body in bodies)) == (
        "struct<`_1`: array<string>, `_2`: struct<`order`: bigint, `lines`: array<double>>, "
        "`_3`: struct<`callbacks`: string, `errbacks`: string, `chain`: string, `chord`: string>>"
    )
