from agent.lab.node.service_rules import ServiceTable, chain_name

TABLE = ServiceTable("ip", "lab", "10.201.0.1", 80)
TABLE6 = ServiceTable("ip6", "lab", "fd00::1", 80)
A, B = ("10.200.0.2", 8080), ("10.200.0.3", 8080)


def test_a_new_service_is_among_the_rejected() -> None:
    assert "elements = { 10.201.0.1 . tcp . 80 : goto reject-chain }" in TABLE.creation()
    assert "type ipv6_addr . inet_proto . inet_service : verdict" in TABLE6.creation()


def test_the_first_endpoint_takes_the_service_from_the_rejected() -> None:
    commands = TABLE.update([], [A])
    assert (
        "delete element ip lab no-endpoint-services { 10.201.0.1 . tcp . 80 : goto reject-chain }" in commands
    )
    assert "add element ip lab service-ips { 10.201.0.1 . tcp . 80 : goto service }" in commands
    assert f"add rule ip lab {chain_name(A)} meta l4proto tcp dnat to 10.200.0.2:8080" in commands


def test_every_endpoint_is_as_likely_as_the_others() -> None:
    commands = TABLE.update([A], [A, B])
    choices = f"{{ 0 : goto {chain_name(A)}, 1 : goto {chain_name(B)} }}"
    assert f"add rule ip lab service numgen random mod 2 vmap {choices}" in commands
    assert not any("element" in command for command in commands)


def test_the_last_endpoint_leaves_the_service_among_the_rejected() -> None:
    commands = TABLE.update([A], [])
    assert commands == [
        "flush chain ip lab service",
        "delete element ip lab service-ips { 10.201.0.1 . tcp . 80 : goto service }",
        "add element ip lab no-endpoint-services { 10.201.0.1 . tcp . 80 : goto reject-chain }",
    ]


def test_an_ipv6_endpoint_is_written_in_brackets() -> None:
    commands = TABLE6.update([], [("fd00::2", 8080)])
    assert "add rule ip6 lab endpoint-fd00--2-8080 meta l4proto tcp dnat to [fd00::2]:8080" in commands
