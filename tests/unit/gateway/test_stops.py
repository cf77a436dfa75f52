from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.stops import StopTrimmer

CONTINUE = ("<|endoftext|>", "<|fim_prefix|>", "/src/", "#- coding: utf-8", "```")


def first_match(text: str, stop: tuple[str, ...]) -> tuple[int, str] | None:
    """vLLM's rule: the stop string that completes first; its end and itself."""
    ends = [(text.find(s) + len(s), s) for s in stop if s in text]
    return min(ends) if ends else None


@given(st.lists(st.text(alphabet="ab`/", max_size=3), max_size=12), st.lists(st.text("ab`/", min_size=1), max_size=3))
def test_the_client_sees_what_vllm_itself_would_have_sent(parts: list[str], stop_list: list[str]) -> None:
    stop = tuple(stop_list)
    trimmer = StopTrimmer(stop)
    raw = seen = ""
    for part in parts:
        raw += part
        match = first_match(raw, stop)
        if match is not None:
            end, hit = match
            seen += trimmer.finish(part[: len(part) - (len(raw) - end)], hit)
            assert seen == raw[: end - len(hit)]
            return
        seen += trimmer.feed(part)
        assert raw.startswith(seen)
    assert seen + trimmer.finish("", None) == raw


def test_only_a_possible_beginning_is_held_back() -> None:
    trimmer = StopTrimmer(CONTINUE)

    assert [trimmer.feed(part) for part in ["return x", " / ", "/s", "um", "\n``", "x"]] == [
        "return x",
        " / ",
        "",
        "/sum",
        "\n",
        "``x",
    ]


def test_without_stop_strings_nothing_is_held_back() -> None:
    assert StopTrimmer(()).feed("<|") == "<|"
