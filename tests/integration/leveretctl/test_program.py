"""The real program `leveretctl` with a real broker: processes, pipes, terminals."""

from __future__ import annotations

import json
import os
import pty
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.broker.version import VERSION
from tests.integration.certificates import Authority
from tests.integration.program import running
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl, LeveretctlProgram
from tests.support.wire import Channel

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "leveret.broker.leveretctl"]


@pytest.fixture(scope="module")
def ctl(leveret: LeveretProcess) -> LeveretctlProgram:
    return LeveretctlProgram(leveret.http_url)


@pytest.fixture
def nobody() -> Iterator[str]:
    """URL of a port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://guest:guest@127.0.0.1:{taken.getsockname()[1]}"


def on_a_terminal(url: str, *arguments: str, stream: str) -> tuple[str, int]:
    """Run the program with one stream on a terminal; return what it wrote there, and its status."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, "LEVERET_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=theirs if stream == "stdout" else subprocess.DEVNULL,
        stderr=theirs if stream == "stderr" else subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 65536):
                written += chunk
        except OSError:
            # The terminal has no other end any more.
            pass
        os.close(ours)
    return written.decode(), process.returncode


def test_the_url_comes_from_the_option_first(leveret: LeveretProcess, nobody: str) -> None:
    ctl = LeveretctlProgram(nobody)
    assert ctl("ping", "-q").status == 69
    assert ctl("--url", leveret.http_url, "ping", "-q") == CommandResult(0, "Ping succeeded\n", "")
    assert ctl("ping", f"--url={leveret.http_url}/", "-q") == CommandResult(0, "Ping succeeded\n", "")


def test_a_url_that_is_none(ctl: LeveretctlProgram) -> None:
    status, out, err = ctl("ping", "--url", "amqp://guest:secret@localhost")
    assert (status, out) == (64, "")
    expected = "--url or LEVERET_URL should be http://user:password@host:port\n"
    assert err.startswith(f"Error (argument validation): not an HTTP URL: {expected}")
    assert "secret" not in err
    for url, why in (("http://h:99999", "Port out of range 0-65535"), ("http://[::1", "Invalid IPv6 URL")):
        assert LeveretctlProgram(url)("ping").err.startswith(f"Error (argument validation): {why}: {expected}")


def test_nobody_answers(nobody: str) -> None:
    address = nobody.rpartition("@")[2]
    status, out, err = LeveretctlProgram(nobody)("list_users")
    assert (status, out) == (69, "Listing users ...\n")
    assert err.startswith(
        f"Error: unable to perform an operation on node '{address}'."
        " Please see diagnostics information and suggestions below.\n\nMost common reasons for this are:\n"
    )
    assert f"attempted to contact: [{address}]\n\n{address}:\n  * " in err
    ping = LeveretctlProgram(nobody)("-q", "ping", "-t", "7")
    assert ping == CommandResult(69, "", f"Error:\nFailed to connect and authenticate to {address} in 7000 ms\n")


def test_a_wrong_password(leveret: LeveretProcess) -> None:
    url = leveret.http_url.replace("guest:guest", "guest:wrong")
    status, _, err = LeveretctlProgram(url)("list_users")
    assert status == 69
    assert err == "Error:\nLogin failed: wrong user name or password (--url http://user:password@host:port)\n"
    assert LeveretctlProgram(url)("ping").status == 69


def test_a_user_who_may_not(leveret: LeveretProcess, ctl: LeveretctlProgram) -> None:
    ctl.output("add_user", "limited", "pw")
    ctl.output("set_user_tags", "limited", "management")
    url = leveret.http_url.replace("guest:guest", "limited:pw")
    ran = LeveretctlProgram(url)("list_users", "-q")
    assert ran == CommandResult(69, "", "Error:\nNot administrator user\n")
    ctl.output("delete_user", "limited")


@pytest.mark.parametrize(
    "arguments",
    [
        ("list_queues", "-p", ""),
        ("purge_queue", "-p", "", "q"),
        ("add_vhost", ""),
        ("delete_user", ""),
        ("set_policy", "", "^a", '{"max-length":1}'),
        ("clear_policy", ""),
        ("list_user_permissions", ""),
    ],
)
def test_an_empty_name_means_nothing_else(leveret: LeveretProcess, arguments: tuple[str, ...]) -> None:
    """As an unset variable of a script is: not the virtual host `/`, nor all users."""
    status, _, err = Leveretctl(leveret.http_url)(*arguments, "-q")
    assert (status, err) == (65, "Error:\nno virtual host, user, queue or other name may be empty\n")


def test_no_answer_in_time(ctl: LeveretctlProgram) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, out, err = ctl("--url", f"http://{address}", "list_users", "--timeout", "1", "-q")
    text = f"Error: operation list_users on node {address} timed out. Timeout value used: 1\n"
    assert (status, out, err) == (75, "", text)
    status, out, err = ctl("list_users", "--timeout=0")
    assert (status, out) == (75, "")


def test_what_answers_is_no_http(ctl: LeveretctlProgram, leveret: LeveretProcess) -> None:
    port = leveret.url.rpartition(":")[2]
    status, _, err = ctl("--url", f"http://127.0.0.1:{port}", "list_users")
    assert status == 69
    assert err.startswith(f"Error: unable to perform an operation on node '127.0.0.1:{port}'.")


def test_await_startup_waits(tmp_path: Path, nobody: str) -> None:
    ctl = LeveretctlProgram(nobody)
    began = time.monotonic()
    ran = ctl("await_startup", "--timeout", "1")
    assert (ran.status, ran.out) == (75, "")
    assert time.monotonic() - began >= 1


def test_await_startup_until_the_broker_is_there(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        url = process.http_url
        process.stop()
        with subprocess.Popen([*COMMAND, "await_startup"], cwd=ROOT, env={**os.environ, "LEVERET_URL": url}) as waiting:
            process.start()
            assert waiting.wait(30) == 0


def test_the_reader_of_a_pipe_goes_away(leveret: LeveretProcess) -> None:
    environment = {**os.environ, "LEVERET_URL": leveret.http_url}
    with subprocess.Popen(
        [*COMMAND, "help"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        # What is not there takes nothing and gives nothing.
        ("list_users -s >&-", 0, "", ""),
        ("no_such_command 2>&-", 64, "", ""),
        ("list_users -s <&-", 0, "guest\t[administrator]\n", ""),
        ("add_user -q streams <&-", 65, "", "Error:\nPassword is not provided via argument or stdin\n"),
        ("version >/dev/full", 70, "", "Error:\nNo space left on device\n"),
        ("list_users >/dev/full", 70, "", "Error:\nNo space left on device\n"),
        ("list_users $(printf '\\377')", 64, "", "Error (argument validation): arguments and input should be UTF-8\n"),
        ("authenticate_user -q guest < <(printf '\\377')", 64, "", "Error (argument validation): arguments and input"),
        # Whatever the terminal's encoding is.
        ("authenticate_user guest ä", 65, 'Authenticating user "guest" ...\n', "Error:\nError: failed to authenticate"),
    ],
)
def test_standard_streams(leveret: LeveretProcess, command: str, status: int, out: str, err: str) -> None:
    ascii_terminal = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        ["bash", "-c", f"{shlex.join(COMMAND)} {command}"],
        env=os.environ | ascii_terminal | {"LEVERET_URL": leveret.http_url},
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout.decode()) == (status, out)
    assert ran.stderr.decode().startswith(err) if err else not ran.stderr


def test_headers_are_bold_on_a_terminal(leveret: LeveretProcess) -> None:
    written, status = on_a_terminal(
        leveret.http_url, "list_users", "--formatter", "pretty_table", "-s", stream="stdout"
    )
    assert status == 0
    assert "│ \x1b[1muser\x1b[0m  │ \x1b[1mtags\x1b[0m          │" in written


def definitions(vhost: str, count: int) -> str:
    queues = [
        {"name": f"q{number}", "vhost": vhost, "durable": False, "auto_delete": False, "arguments": {}}
        for number in range(count)
    ]
    return json.dumps({"vhosts": [{"name": vhost}], "queues": queues})


def test_import_shows_progress_on_a_terminal_only(
    leveret: LeveretProcess, ctl: LeveretctlProgram, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(definitions("progress", 2_500))
    written, status = on_a_terminal(leveret.http_url, "import_definitions", str(file), stream="stderr")
    assert status == 0
    assert "Importing [" in written
    assert "/2501" in written
    # It leaves nothing behind.
    assert written.endswith("\r\x1b[K")
    assert ctl("import_definitions", str(file), "-q").err == ""
    written, status = on_a_terminal(leveret.http_url, "import_definitions", str(file), "--silent", stream="stderr")
    assert (written, status) == ("", 0)
    assert len(ctl.output("list_queues", "-p", "progress", "name", "-s").splitlines()) == 2_500
    ctl.output("delete_vhost", "progress")


def test_moving_and_purging_show_progress_on_a_terminal(
    leveret: LeveretProcess, ctl: LeveretctlProgram, vhost: str, channel: Channel
) -> None:
    for queue in ("from", "to"):
        channel.queue_declare(queue)
    for _ in range(12_000):
        channel.publish("", "from", b"x")
    channel.sync()
    written, status = on_a_terminal(leveret.http_url, "-p", vhost, "move_messages", "from", "to", stream="stderr")
    assert status == 0
    assert "Moving [" in written
    assert "/12000" in written
    written, status = on_a_terminal(leveret.http_url, "-p", vhost, "purge_queue", "to", stream="stderr")
    assert status == 0
    assert written.startswith("\r\x1b[KPurging [")
    assert written.endswith("\r\x1b[K")
    assert ctl.output("list_queues", "-p", vhost, "-s") == "from\t0\nto\t0\n"


def modules_of(url: str, *arguments: str) -> set[str]:
    """Run a command in a fresh interpreter; return the modules that it has imported."""
    script = (
        "import sys; from leveret.broker.leveretctl.program import main\n"
        "try: main()\n"
        "except SystemExit: sys.stderr.write('\\n'.join(sys.modules))"
    )
    # Where coverage is measured, Python loads more when it starts.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**environ, "LEVERET_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stderr.split())


def test_it_is_a_client_and_nothing_else(leveret: LeveretProcess) -> None:
    loaded = modules_of(leveret.http_url, "list_queues")
    ours = {name for name in loaded if name.split(".")[0] == "leveret"}
    allowed = {
        "leveret",
        "leveret.broker",
        "leveret.broker.management",
        "leveret.broker.management.fields",
        "leveret.broker.printable",
        "leveret.broker.version",
        "leveret.compilation",
        "leveret.protocol",
        "leveret.protocol.erlang_terms",
    }
    assert {name for name in ours if not name.startswith("leveret.broker.leveretctl")} <= allowed
    # What takes long to load is not loaded: start-up is most of a command's time.
    assert loaded.isdisjoint({"aiohttp", "asyncio", "uvloop", "yaml", "dataclasses", "inspect", "argparse", "logging"})


def test_help_loads_no_http_client(leveret: LeveretProcess) -> None:
    assert "http.client" not in modules_of(leveret.http_url, "version")
    assert "http.client" not in modules_of(leveret.http_url, "list_queues", "bogus")


def test_version(ctl: LeveretctlProgram) -> None:
    assert ctl("version") == CommandResult(0, f"{VERSION}\n", "")
    assert ctl("--version") == CommandResult(0, f"{VERSION}\n", "")


def completed(words: str) -> list[str]:
    """Let bash complete the last word of a command line."""
    script = f"""
        leveretctl() {{ {sys.executable} -m leveret.broker.leveretctl "$@"; }}
        eval "$(leveretctl completion bash)"
        compopt() {{ :; }}
        COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _leveretctl
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_completes() -> None:
    assert completed("leveretctl list_q") == ["list_queues"]
    assert completed("leveretctl -p x list_q") == ["list_queues"]
    assert completed("leveretctl list_queues messages_ready_") == ["messages_ready_ram"]
    assert completed("leveretctl list_queues --off") == ["--offline"]
    assert completed("leveretctl list_queues --formatter = pr") == ["pretty_table"]
    assert completed("leveretctl list_queues --formatter =") == ["table", "pretty_table", "json", "csv", "erlang"]
    assert completed("leveretctl help set_pol") == ["set_policy"]


def test_a_certificate(tmp_path: Path) -> None:
    """What is wrong with it, and what helps."""
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    tls = f"ssl_options: {{certfile: {issued.certificate}, keyfile: {issued.key}}}\n"
    (tmp_path / "leveret.yaml").write_text(tls)
    with running(tmp_path, "--config", str(tmp_path / "leveret.yaml"), "--management-tls-port", "0") as program:
        port = program.addresses["management-tls"].rpartition(":")[2]
        plain = program.addresses["management"].rpartition(":")[2]

        def said(url: str, *options: str) -> tuple[int, list[str]]:
            ran = Leveretctl(f"https://guest:guest@{url}")("ping", "-q", *options)
            return ran.status, (ran.out + ran.err).splitlines()

        trusted = ("--cacert", str(authority.file))
        assert said(f"localhost:{port}", *trusted) == (0, ["Ping succeeded"])
        status, (_, reason, advice) = said(f"localhost:{port}")
        assert (status, reason.partition(": ")[0]) == (69, f"the certificate of localhost:{port} is not trusted")
        assert advice.endswith("name the PEM file of the authority that has signed it with --cacert or LEVERET_CACERT")
        status, (_, reason, advice) = said(f"127.0.0.1:{port}", *trusted)
        assert (status, "match" in reason) == (69, True), reason
        assert advice == "suggestion: use a name of the certificate as the host in --url or LEVERET_URL"
        status, (_, reason, advice) = said(f"localhost:{plain}", *trusted)
        assert (status, reason) == (69, f"localhost:{plain} does not speak TLS")
        assert said(f"localhost:{port}", "--cacert", "none.pem") == (
            65,
            ["Error:", "--cacert: none.pem cannot be read: No such file or directory"],
        )
        assert said(f"localhost:{port}", f"--cacert={issued.key}") == (
            65,
            ["Error:", f"--cacert: {issued.key} has no certificate in PEM form"],
        )
