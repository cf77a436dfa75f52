"""Bands, gains, ratio, result files: pure parts of `make bench-learning`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.algorithms import ALGORITHMS, family, parse
from benchmarks.learning.evaluation import summed_up
from benchmarks.learning.figures import CURVES, Band, best, curves, gains, ratio
from benchmarks.learning.picture import draw
from benchmarks.learning.reference import k3
from benchmarks.learning.results import Point, Result, Results
from clients.developer.evaluation import Judged
from shared.kit.errors import SettingsError


def point(events: int, reward: float, sampled: float = 0.0) -> Point:
    return Point(events, dict.fromkeys(CURVES, reward), dict.fromkeys(CURVES, sampled), kl=0.01 * events)


def result(algorithm: str, seed: int, after: float, before: float = 0.1) -> Result:
    return Result(algorithm, seed, [point(0, before), point(8, after, after)], {"rounds": 1}, 2.0)


def test_band_is_students() -> None:
    """By hand: mean 2, deviation 1, three values: 2 ± 4.303 / √3."""
    band = Band.of([1.0, 2.0, 3.0])
    assert (band.mean, band.low, band.high) == pytest.approx((2.0, 2 - 2.4843, 2 + 2.4843), abs=1e-3)
    assert Band.of([0.5]) == Band(0.5, None, None)
    assert Band.of([0.0, 1.0]) == Band(0.5, None, None)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=40))
def test_band_holds_the_mean(values: list[float]) -> None:
    band = Band.of(values)
    assert band.low is not None
    assert band.high is not None
    assert band.low <= band.mean <= band.high


def test_ratio_compares_gains_with_raw_at_its_best_rate() -> None:
    results = {
        "ours": [result("ours", 1, 0.5), result("ours", 2, 0.7)],
        "raw": [result("raw", 1, 0.0), result("raw", 2, 0.0)],
        "raw@2e-05": [result("raw@2e-05", 1, 0.2), result("raw@2e-05", 2, 0.4)],
    }
    assert best(results, "raw", "greedy") == "raw@2e-05"
    line = ratio(results, "greedy", "reward_gain")
    assert line is not None
    assert (line["ours"], line["raw"], line["ratio"], line["seeds"]) == (0.5, 0.2, 2.5, 2)
    assert line["algorithms"] == ["ours", "raw@2e-05"]
    assert line["difference"]["mean"] == 0.3


def test_no_ratio_to_nothing() -> None:
    results = {"ours": [result("ours", 1, 0.5)], "raw": [result("raw", 1, 0.05)]}
    line = ratio(results, "greedy", "reward_gain")
    assert line is not None
    assert line["ratio"] is None
    assert ratio({"ours": results["ours"]}, "greedy", "reward_gain") is None


def test_lines_and_picture(tmp_path: Path) -> None:
    results = {"ours": [result("ours", 1, 0.5), result("ours", 2, 0.7)], "raw@3e-05": [result("raw@3e-05", 1, 0.2)]}
    lines = curves(results)
    (line,) = [
        line
        for line in lines
        if (line["algorithm"], line["events"], line["figure"], line.get("decoding")) == ("ours", 8, "reward", "greedy")
    ]
    assert line["mean"] == 0.6
    assert {line["figure"] for line in lines} == {*CURVES, "kl_nats_per_token"}
    by_key = {(line["algorithm"], line["decoding"], line["of"]): line for line in gains(results)}
    assert by_key["ours", "greedy", "reward"]["each"] == [0.4, 0.6]
    assert by_key["ours", "sampled", "reward"]["mean"] == 0.6
    draw(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_means_over_moments_and_over_what_is_shown() -> None:
    shown = Judged(True, True, 1.0, 1.0, 0.75, 0.0)
    refused = Judged(True, False, 0.3, 0.0, -0.25, 0.0)
    silent = Judged(False, False, 0.0, 0.0, 0.0, 0.0)
    measured = summed_up([shown, refused, silent, silent], [10, 20, 0, 0], [4, 6, 1, 1])
    assert measured.reward == 0.125
    assert (measured.acceptance, measured.acceptance_of_shown, measured.suggestion_rate) == (0.25, 0.5, 0.5)
    assert (measured.mean_chars, measured.mean_tokens, measured.exact) == (15.0, 3.0, 0.25)
    assert summed_up([silent], [0], [1]).acceptance_of_shown == 0.0


@given(st.floats(-10, 0), st.floats(-10, 0))
def test_k3_is_a_distance(policy: float, base: float) -> None:
    assert k3(policy, base) >= -1e-12
    assert k3(policy, policy) == 0.0


def test_k3_by_hand() -> None:
    assert k3(math.log(0.5), math.log(0.25)) == pytest.approx(0.5 + math.log(2) - 1)


def test_results_survive_and_do_not_mix(tmp_path: Path) -> None:
    one = result("raw@2e-05", 3, 0.2)
    store = Results(tmp_path, {"events": 8})
    assert store.load("raw@2e-05", 3) is None
    assert store.base_point() is None
    store.save(one)
    store.save_base_point(one.points[0])
    again = Results(tmp_path, {"events": 8})
    assert again.load("raw@2e-05", 3) == one
    assert again.base_point() == one.points[0]
    with pytest.raises(SettingsError, match="other settings; choose another --out"):
        Results(tmp_path, {"events": 9}).load("raw@2e-05", 3)


def test_algorithms_share_all_but_what_defines_them() -> None:
    configs = {name: algorithm.learner_config("m").model_dump() for name, algorithm in ALGORITHMS.items()}
    differing = {key for key in configs["ours"] for name in configs if configs[name][key] != configs["ours"][key]}
    assert differing == {"loss", "importance", "kl_coef", "max_logprob_gap"}
    assert configs["tracker"] == configs["reinforce_pp"] == configs["ours"]
    assert ALGORITHMS["ours"].group_size == 8
    assert [algorithm.group_size for name, algorithm in ALGORITHMS.items() if name != "ours"] == [1, 1, 1]
    raw = ALGORITHMS["raw"]
    assert (raw.weights.accepted, raw.weights.rejected, raw.temperature) == (1.0, 0.0, 0.1)


def test_a_rate_of_its_own() -> None:
    algorithm = parse("raw@2e-5")
    assert (algorithm.name, family(algorithm.name)) == ("raw@2e-05", "raw")
    assert algorithm.learner_config("m").learning_rate == 2e-5
    assert parse("ours").learner_config("m").learning_rate == 1e-4
    for spec, sentence in (("best", "'best' is not one of ours"), ("raw@fast", "'fast' in 'raw@fast' is not")):
        with pytest.raises(SettingsError, match=sentence):
            parse(spec)
