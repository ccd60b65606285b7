from __future__ import annotations

from tests.mutants.report import table


def test_each_module_has_a_line_and_the_sum_is_last() -> None:
    lines = table(
        "policies",
        {
            "policies/ages.py": ["killed", "killed", "survived", "timeout"],
            "policies/keys.py": ["no tests", "segfault"],
            "policies/unchanged.py": [],
        },
    ).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["policies/ages.py", "4", "2", "1", "1", "0", "75.0%"],
        ["policies/keys.py", "2", "1", "0", "0", "1", "50.0%"],
        ["policies", "6", "3", "1", "1", "1", "66.7%"],
    ]


def test_columns_stand_below_their_headings() -> None:
    heading, line = table("", {"policies/keys.py": ["killed"] * 1000}).splitlines()
    assert heading.index("mutants") + len("mutants") == line.index("1000") + len("1000")
    assert len(heading) == len(line)
