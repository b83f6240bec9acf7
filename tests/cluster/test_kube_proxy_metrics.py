"""kube-proxy's metrics -> how far it is; needs nothing."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.kube_proxy_metrics import NotKubeProxyMetricsError, SyncProgress, sync_progress_of
from tests.recordings.reader import RECORDINGS

PREFIX = "kubeproxy_sync_proxy_rules_"
MICROSECOND = 1000


def progress(*lines: str) -> SyncProgress:
    return sync_progress_of(["".join(f"{PREFIX}{line}\n" for line in lines).encode()])


def pieces(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


RECORDED = {
    "nftables": SyncProgress(1796001341503885000, 1796001341482484000, 0),
    "iptables-nft": SyncProgress(1796001210491468000, 1796001210463172000, 0),
    "iptables-legacy": SyncProgress(1796001378990900000, 1796001377973384000, 0),
}


@pytest.mark.parametrize("mode", ["nftables", "iptables-nft", "iptables-legacy"])
@pytest.mark.parametrize("size", [1, 100, 65536])
def test_a_recorded_dump_gives_its_times(mode: str, size: int) -> None:
    found = sync_progress_of(pieces((RECORDINGS / f"kube-proxy/{mode}.txt").read_bytes(), size))
    assert found == RECORDED[mode]


def test_without_the_family_label_the_one_series_counts() -> None:
    found = progress(
        "last_timestamp_seconds 1.5e9", "last_queued_timestamp_seconds 1.4e9", "endpoint_changes_pending 2"
    )
    assert found == SyncProgress(1_500_000_000 * 10**9, 1_400_000_000 * 10**9, 2)


def test_a_family_that_has_a_change_to_apply_holds_the_node_back() -> None:
    found = progress(
        'last_timestamp_seconds{ip_family="IPv4"} 110',
        'last_queued_timestamp_seconds{ip_family="IPv4"} 100',
        'last_timestamp_seconds{ip_family="IPv6"} 50',
        'last_queued_timestamp_seconds{ip_family="IPv6"} 105',
    )
    assert found == SyncProgress(50 * 10**9, 105 * 10**9, None)


def test_a_family_with_nothing_to_apply_holds_nobody_back() -> None:
    found = progress(
        'last_timestamp_seconds{ip_family="IPv4"} 110',
        'last_queued_timestamp_seconds{ip_family="IPv4"} 100',
        'last_timestamp_seconds{ip_family="IPv6"} 50',
        'last_queued_timestamp_seconds{ip_family="IPv6"} 49',
    )
    assert found.synced_ns == 110 * 10**9


def test_pending_changes_of_all_families_add_up() -> None:
    found = progress(
        'endpoint_changes_pending{ip_family="IPv4"} 1', 'endpoint_changes_pending{ip_family="IPv6"} 2'
    )
    assert found == SyncProgress(None, None, 3)


def test_a_sync_that_never_happened_is_unknown_and_not_1970() -> None:
    assert progress("last_timestamp_seconds 0", "endpoint_changes_pending 0") == SyncProgress(None, None, 0)


def test_other_metrics_of_like_names_are_passed_over() -> None:
    found = progress(
        "last_timestamp_seconds_total 7", "service_changes_pending 9", "endpoint_changes_pending 0"
    )
    assert found == SyncProgress(None, None, 0)


@pytest.mark.parametrize("ending", ["\n", "\r\n", " 1796001341000\n", ""])
def test_line_endings_and_timestamps_do_not_matter(ending: str) -> None:
    found = sync_progress_of([f"{PREFIX}endpoint_changes_pending 4{ending}".encode()])
    assert found.pending == 4


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "soon", "1e300", "0x10"])
def test_a_value_that_is_no_time_is_refused(value: str) -> None:
    with pytest.raises(NotKubeProxyMetricsError, match="not a time or a count"):
        progress(f"last_timestamp_seconds {value}")


@pytest.mark.parametrize("body", [b"", b"\n", b"<html></html>", b"\x00\xff" * 100, b"go_goroutines 7\n"])
def test_what_is_not_kube_proxys_is_refused(body: bytes) -> None:
    with pytest.raises(NotKubeProxyMetricsError, match="none of kubeproxy_sync_proxy_rules"):
        sync_progress_of([body])


def test_a_body_without_line_breaks_is_given_up_early() -> None:
    def endless() -> object:
        while True:
            yield b"x" * 65536

    with pytest.raises(NotKubeProxyMetricsError, match="a line of more than"):
        sync_progress_of(endless())  # type: ignore[arg-type]


def test_several_megabytes_around_it_do_not_matter() -> None:
    noise = b"".join(b'apiserver_request_total{verb="GET",n="%d"} 1\n' % n for n in range(100_000))
    text = noise + b"kubeproxy_sync_proxy_rules_endpoint_changes_pending 1\n" + noise
    assert len(text) > 8_000_000
    assert sync_progress_of(pieces(text, 65536)).pending == 1


@given(st.lists(st.binary(max_size=200)))
def test_no_answer_breaks_the_reader(answer: list[bytes]) -> None:
    with pytest.raises(NotKubeProxyMetricsError):
        sync_progress_of(answer)


@given(st.binary(max_size=60), st.integers(min_value=1, max_value=90))
def test_no_sample_breaks_the_reader(rest: bytes, size: int) -> None:
    text = b"kubeproxy_sync_proxy_rules_last_timestamp_seconds" + rest
    try:
        found = sync_progress_of(pieces(text, size))
    except NotKubeProxyMetricsError:
        return
    assert found.synced_ns is None or found.synced_ns > 0


FAMILIES = st.sampled_from(
    ["", '{ip_family="IPv4"}', '{ip_family="IPv6"}', '{ip_family="IPv6",mode="nftables"}']
)
NOISE = st.sampled_from(
    [
        "# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds When it was",
        "# TYPE kubeproxy_sync_proxy_rules_endpoint_changes_pending gauge",
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.001"} 7 # {trace_id="a"} 0.0004 1.5e9',
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds_total 9",
        "kubeproxy_sync_proxy_rules_service_changes_pending NaN",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
        "",
        " kubeproxy_sync_proxy_rules_endpoint_changes_pending 99",
        "\x00\ufffd{}} +Inf",
    ]
)


@given(
    synced=st.dictionaries(FAMILIES, st.integers(1, 2 * 10**9), max_size=5),
    pending=st.dictionaries(FAMILIES, st.integers(0, 10**6), min_size=1, max_size=5),
    noise=st.lists(NOISE, max_size=20),
    random=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 4000), max_size=10),
)
def test_the_samples_are_found_whatever_stands_between_them_and_wherever_the_answer_is_cut(
    synced: dict[str, int],
    pending: dict[str, int],
    noise: list[str],
    random: Random,
    cuts: list[int],
) -> None:
    lines = [f"{PREFIX}last_timestamp_seconds{labels} {value}" for labels, value in synced.items()]
    lines += [f"{PREFIX}endpoint_changes_pending{labels} {value}" for labels, value in pending.items()]
    lines += noise
    random.shuffle(lines)
    text = "\n".join([*lines, ""]).encode()
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = sync_progress_of(text[start:end] for start, end in itertools.pairwise(at))
    assert found.pending == sum(pending.values())
    assert found.synced_ns == max((value * 10**9 for value in synced.values()), default=None)
