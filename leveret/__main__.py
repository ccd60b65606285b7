"""`python -m leveret` is `leveret`."""

from __future__ import annotations

from leveret.broker.__main__ import main

if __name__ == "__main__":
    main()
