import shutil
import signal
import subprocess

from agent.lab.node.errors import NodeError

TIMEOUT_S = 20.0


def run(argv: list[str], *, stdin: str = "") -> str:
    """Run one host tool to its end and return its standard output.

    Raises NodeError when it is not installed, fails, or takes longer than TIMEOUT_S.
    """
    if shutil.which(argv[0]) is None:
        raise NodeError(
            f"{argv[0]} not found: install it (Debian: iproute2, nftables, util-linux, nginx-light)"
        )
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NodeError(f"{' '.join(argv)} did not end within {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        complaint = " ".join(done.stderr.split()) or how_it_ended(argv[0], done.returncode)
        raise NodeError(f"{' '.join(argv)} failed: {complaint}")
    return done.stdout


def how_it_ended(tool: str, status: int) -> str:
    """What to tell of a tool that failed in silence; `status` is negative for a signal.

    nft reads every table of the host first, and nft 1.0.6 (Debian 12) crashes on sets that nft 1.1.3 made.
    """
    if status >= 0:
        return f"exit status {status}"
    ending = f"killed by {signal.Signals(-status).name}"
    if tool != "nft":
        return ending
    return f"{ending}; if 'nft list ruleset' ends so too, remove the tables of a newer nft, with that nft"


def ip_batch(lines: list[str], *, namespace: str | None = None) -> None:
    """Run `ip` commands in one process, up to the first that fails; `namespace` is a name in /run/netns."""
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="".join(f"{line}\n" for line in lines))
