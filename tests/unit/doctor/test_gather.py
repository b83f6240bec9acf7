"""What is read from a node's files and answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agent.doctor.facts import CgroupLayout
from agent.doctor.gather import (
    ask_kube_proxy,
    cgroup_layout,
    find_tracefs,
    kubepods_below,
    mount_points,
)

HYBRID = r"""
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:7 - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:2 - cgroup2 cgroup2 rw
42 23 0:12 / /mnt/trace\040files rw - tracefs tracefs rw
""".strip()


def test_mount_points_are_read_with_optional_fields_and_escaped_spaces() -> None:
    assert tuple(mount_points(HYBRID))[1:] == (
        ("cgroup", Path("/sys/fs/cgroup/pids")),
        ("cgroup2", Path("/sys/fs/cgroup/unified")),
        ("tracefs", Path("/mnt/trace files")),
    )


def test_a_hybrid_layout_has_both_hierarchies() -> None:
    mounts = tuple(mount_points(HYBRID))
    layout = cgroup_layout(mounts)
    assert layout.unified == Path("/sys/fs/cgroup/unified")
    assert layout.legacy == (Path("/sys/fs/cgroup/pids"),)


def test_no_mounted_hierarchy_is_no_error() -> None:
    assert cgroup_layout(()) == CgroupLayout(None, (), ())


@pytest.mark.parametrize(
    "folder", ["kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-x/kubepods-y"]
)
def test_the_kubelets_cgroup_is_found_also_below_others(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "system.slice" / "cron.service").mkdir(parents=True)
    assert list(kubepods_below(tmp_path)) == [tmp_path / folder]


def test_tracefs_is_found_where_it_is_mounted_and_not_readable_when_it_has_no_events(tmp_path: Path) -> None:
    assert find_tracefs((("tmpfs", tmp_path),)) is None
    empty = find_tracefs((("tracefs", tmp_path),))
    assert empty is not None
    assert not empty.readable
    (tmp_path / "events").mkdir()
    found = find_tracefs((("tracefs", tmp_path),))
    assert found is not None
    assert found.mount == tmp_path
    assert found.readable


@contextmanager
def serving(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        thread.join()


def test_kube_proxy_is_known_by_its_own_metrics() -> None:
    with serving(b"# HELP x\nkubeproxy_sync_proxy_rules_last_timestamp_seconds 1.7e+09\n") as url:
        assert ask_kube_proxy(url).answer == url


def test_another_server_at_its_address_is_not_kube_proxy() -> None:
    with serving(b"up 1\n") as url:
        probe = ask_kube_proxy(url)
    assert probe.answer is None
    assert "not with kube-proxy's metrics" in (probe.problem or "")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", "127.0.0.1:10249", "http://[::1/", ""])
def test_no_answer_and_no_address_are_one_line(url: str) -> None:
    problem = ask_kube_proxy(url).problem
    assert problem
    assert "\n" not in problem
