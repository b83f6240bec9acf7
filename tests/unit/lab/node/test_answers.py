import pytest

from agent.lab.node.load_process import Answer, parse_answer

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Pod: web\r\nConnection: close\r\n\r\nweb\n"


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_an_answer_that_is_cut_anywhere_is_not_complete(length: int) -> None:
    assert parse_answer(WHOLE[:length]) is None


def test_a_whole_answer_says_who_gave_it_and_whether_the_connection_lives_on() -> None:
    assert parse_answer(WHOLE) == Answer(status=200, pod="web", keep_alive=False)
    assert parse_answer(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n") == Answer(502, "", True)
