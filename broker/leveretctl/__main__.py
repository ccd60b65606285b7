"""Run `leveretctl` as `python -m leveret.broker.leveretctl`."""

from __future__ import annotations

from leveret.broker.leveretctl.program import main

if __name__ == "__main__":
    main()
