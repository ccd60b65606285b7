r"""Decisions without I/O or clock: effective settings, limits, dead-lettering, permission matching.

Settings. `QueueSettings` are the effective values of arguments, policy and operator policy
(`policies/queue_settings.py`). A policy key or queue argument is one row in `policies/policy_keys.py`: values, error
texts, queue types, how it combines with the argument and with operator policies. When a policy changes,
`Queue.apply_policies` applies the difference at once.

Patterns of policies, permissions and filters mean what they mean in Erlang's `re`: PCRE 8 on bytes with Latin-1
letters. `policies/pcre.py` translates them for the `regex` library, and refuses what it cannot translate: of 471
patterns recorded on RabbitMQ 33, which rule 3.2.11 (docs/rules) lists by kind; the others match the same. The package
`pcre2` (0.7.1) was tried instead. Of the first 223 it differs in 24, because PCRE2 has another syntax (`\m`, `a{,2}`,
`[\d-x]`) and the package cannot set character tables, so `\w` matches ASCII only. A match limit can only be written
into the pattern, and it holds the interpreter's lock while it matches. `regex` takes a time limit for each search: 10
ms, then no match, and less for a pattern that has been too slow before.
"""

from __future__ import annotations

if __name__ != "leveret.policies":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.policies instead")
