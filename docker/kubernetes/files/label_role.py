"""Keeps the label leveret/role of this pod: whether the broker in it leads. A service selects the leader by it."""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

ACCOUNT = os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = os.environ.get("SERVER") or "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
CHECK = os.environ.get("CHECK", "http://127.0.0.1:15672/api/health/checks/leader")
POD = f"{SERVER}/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/pods/{os.environ['POD_NAME']}"
#: Seconds between looks, and those after which the label is set again in any case.
LOOK = float(os.environ.get("LOOK_SECONDS", "0.5"))
AGAIN = 60.0


def role() -> str:
    """Return the role of the broker in this pod."""
    try:
        with urllib.request.urlopen(CHECK, timeout=2):
            return "leader"
    except OSError:
        return "standby"


def set_label(value: str) -> None:
    """Set the label of this pod; an OSError if that fails."""
    with open(f"{ACCOUNT}/token", encoding="ascii") as file:
        token = file.read().strip()
    tls = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt") if SERVER.startswith("https:") else None
    patch = json.dumps({"metadata": {"labels": {"leveret/role": value}}}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    with urllib.request.urlopen(urllib.request.Request(POD, patch, headers, method="PATCH"), timeout=5, context=tls):
        pass


def main() -> None:
    """Look, and set the label when it is another one, until the pod ends."""
    label, since, told = "", 0.0, ""
    while True:
        found = role()
        if found != label or time.monotonic() - since > AGAIN:
            try:
                set_label(found)
                label, since, told = found, time.monotonic(), ""
            except OSError as error:
                if str(error) != told:
                    print(f"the label leveret/role cannot be set to {found}: {error}", file=sys.stderr, flush=True)
                told = str(error)
        time.sleep(LOOK)


if __name__ == "__main__":
    main()
