"""Damaged traces are diagnosed or refused in a sentence, never a traceback."""

import random

import pytest

from fuzz_traces import CORPUS, documents, mutated, problem


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda path: path.name)
def test_what_broke_us_once_does_so_no_more(path):
    assert problem(path) is None


@pytest.mark.parametrize("seed", range(40))
def test_damage_at_random_breaks_nothing(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "trace.json"
    path.write_bytes(mutated(rng, rng.choice(documents())))
    assert problem(path) is None
