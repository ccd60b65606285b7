"""Run `leveretctl` as `python -m leveret.broker.management.cli`."""

from __future__ import annotations

from leveret.broker.management.cli.program import main

if __name__ == "__main__":
    main()
