"""The prober's process: targets as JSON lines on standard input, results as JSON lines on standard output."""

import asyncio
import contextlib
import errno
import json
import sys
import time
from pathlib import Path
from typing import Any

from agent.lab.node.probe import ProbeKind

COMM = "kubelet"


def error_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


async def http_get(host: str, port: int, path: str) -> tuple[bool, str]:
    """As the kubelet judges it: a status from 200 to 399 is success."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: kube-probe/1.36\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        status_line = await reader.readline()
        words = status_line.split()
        if len(words) < 2 or not words[1].isdigit():
            return False, "EOF"
        await reader.read()
        return 200 <= int(words[1]) < 400, words[1].decode()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def tcp_socket(host: str, port: int) -> tuple[bool, str]:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    await writer.wait_closed()
    return True, "connected"


async def probe_once(target: dict[str, Any]) -> tuple[bool, str]:
    try:
        async with asyncio.timeout(target["timeout_s"]):
            if target["kind"] == ProbeKind.HTTP_GET:
                return await http_get(target["host"], target["port"], target["path"])
            return await tcp_socket(target["host"], target["port"])
    except TimeoutError:
        return False, "timeout"
    except OSError as error:
        return False, error_name(error)


async def probe_forever(target: dict[str, Any]) -> None:
    await asyncio.sleep(target["initial_delay_s"])
    due = time.monotonic()
    while True:
        success, detail = await probe_once(target)
        result = {"name": target["name"], "time_ns": time.time_ns(), "success": success, "detail": detail}
        print(json.dumps(result), flush=True)
        due = max(due + target["period_s"], time.monotonic())
        await asyncio.sleep(due - time.monotonic())


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    probes: dict[str, asyncio.Task[None]] = {}
    while line := await reader.readline():
        message = json.loads(line)
        if "watch" in message:
            target = message["watch"]
            if target["name"] in probes:
                probes[target["name"]].cancel()
            probes[target["name"]] = asyncio.create_task(probe_forever(target))
        elif message["forget"] in probes:
            probes.pop(message["forget"]).cancel()


if __name__ == "__main__":
    Path("/proc/self/comm").write_text(COMM)
    asyncio.run(main())
