"""`gobrrr treat` as typed, and what it leaves behind: nothing."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gobrrr import schema
from gobrrr.cli import treat as treat_command
from gobrrr.cli.treat import _following
from gobrrr.errors import Missing
from gobrrr.timing.steady import StepEffort
from gobrrr.treat import treating
from gobrrr.treat.outcome import NotTried, Prescription, Rejected
from gobrrr.treat.prescription import fingerprint_of
from gobrrr.treat.race import Race
from gobrrr.treat.search import INTERRUPTED, SPENT
from gobrrr.treat.treating import treat
from gobrrr.treat.treatment import TREATMENTS
from gobrrr.treat.trial import UNDECIDED
from reported import treated
from test_count_cli import TRAINED, written
from test_examination import probed
from test_examine_cli import folder, gobrrr
from test_treat_treatments import bits, flags
from treating import inference, subject, training

__all__ = ["folder", "gobrrr", "probed", "written"]

FEW = StepEffort(warmup_steps=2, warmup_s=1, window_s=0, window_steps=1, windows=3, budget_s=0)

pytestmark = pytest.mark.usefixtures("probed")


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """Nothing is compiled here, and few steps are raced."""
    some = {name: one for name, one in TREATMENTS.items() if not one.compiles}
    monkeypatch.setattr(treating, "TREATMENTS", some)
    monkeypatch.setattr(treating, "CPU_STEP_EFFORT", FEW)


def test_afterwards_everything_is_bit_for_bit_as_it_was():
    made = training(dropout=0.1)
    found = subject(made)
    torch.manual_seed(5)
    before = bits(found), flags(found), torch.get_rng_state().tolist()
    result = treat(lambda: made, "made.py:up")
    assert (bits(found), flags(found), torch.get_rng_state().tolist()) == before
    assert "fused-optimizer" in {one.treatment for one in (*result.kept, *result.rejected, *result.not_tried)}


def test_a_step_that_fails_while_it_is_treated_leaves_everything_as_it_was(monkeypatch):
    made = training()
    found = subject(made)
    before = bits(found), flags(found)
    monkeypatch.setattr(treating, "truth", lambda _subject: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        treat(lambda: made, "made.py:up")
    assert (bits(found), flags(found)) == before


def test_json_has_the_keys_that_others_rely_on(gobrrr, written):
    code, out, _ = gobrrr("treat", written(TRAINED), "--json", "--keep", "rx.json")
    found = json.loads(out)
    assert code in (0, 3)
    assert {
        *("schema_version", "baseline_s", "treated_s", "speedup", "speedup_low", "speedup_high", "predicted_speedup"),
        *("compulsory_floor_s", "fused_floor_s", "kept", "rejected", "not_tried", "prescription"),
    } <= set(found)
    assert found["treated_s"] == pytest.approx(found["baseline_s"] / found["speedup"])
    for one in found["not_tried"]:
        assert {"treatment", "bound", "reason"} <= set(one)


def test_the_prescription_is_a_file_that_can_be_read(gobrrr, written, tmp_path, monkeypatch):
    monkeypatch.setattr(treat_command, "_treated", lambda *_: treated())
    path = tmp_path / "rx.json"
    code, _, err = gobrrr("treat", written(TRAINED), "--keep", str(path))
    assert code == 0
    assert schema.read(Prescription, path) == treated().prescription
    assert f"wrote {path}" in err


NOTHING = replace(treated(), kept=(), rejected=(), not_tried=())


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (NOTHING, 0, ""),
        (replace(NOTHING, rejected=(Rejected("compile", "slower", 1.1, 0.9),)), 0, ""),
        (replace(NOTHING, rejected=(Rejected("compile", f"{UNDECIDED}: amid noise", 1.1, 1.0),)), 3, "quieter"),
        (replace(NOTHING, not_tried=(NotTried("compile", None, INTERRUPTED),)), 130, "interrupted"),
    ],
    ids=["nothing to gain", "nothing gained", "noise", "interrupted"],
)
def test_what_did_not_help_is_not_written_over_what_did(gobrrr, written, tmp_path, monkeypatch, found, code, said):
    monkeypatch.setattr(treat_command, "_treated", lambda *_: found)
    path = tmp_path / "rx.json"
    path.write_text("what helped")
    ended, out, err = gobrrr("treat", written(TRAINED), "--keep", str(path))
    assert (ended, path.read_text()) == (code, "what helped")
    assert f"nothing helped: {path} is not written" in err
    assert said in err
    assert "next: gobrrr examine" in out, "it is told all the same"


def test_the_page_says_what_was_not_tried_and_ends_with_the_next_command(gobrrr, written):
    code, out, err = gobrrr("treat", written(TRAINED), "--budget", "1m")
    assert code in (0, 3)
    assert "examining" in err
    assert "whole-step-graph: CUDA graphs need a CUDA device" in " ".join(out.split())
    assert "\nnext: gobrrr " in out


def test_what_to_type_next_depends_on_what_was_found():
    helped, idle = treated(), replace(treated(), kept=())
    none, some = frozenset(), frozenset({"tf32", "bf16"})
    assert _following(helped, "a.py:b", none, None) == "gobrrr treat a.py:b --keep rx.json"
    assert _following(helped, "a.py:b", some, None) == "gobrrr treat a.py:b --allow bf16,tf32 --keep rx.json"
    told = 'in your program: rx = gobrrr.apply("my rx.json", model, optimizer)'
    assert _following(helped, "a.py:b", none, Path("my rx.json")).removesuffix("; step = rx.step(step)") == told
    assert _following(idle, "a.py:b", none, Path("rx.json")) == "gobrrr examine a.py:b"
    cut = replace(idle, not_tried=(NotTried("compile", 1.07, SPENT),), spent_s=82.0)
    assert _following(cut, "a.py:b", some, None) == "gobrrr treat a.py:b --allow bf16,tf32 --budget 6m"


@pytest.mark.parametrize(
    ("models", "optimizers", "given"),
    [(1, 1, "model, optimizer"), (1, 0, "model"), (2, 0, "[model, ...]"), (2, 2, "[model, ...], [optimizer, ...]")],
)
def test_who_applies_it_is_told_what_to_give(models, optimizers, given):
    found = treated()
    found = replace(found, prescription=replace(found.prescription, models=models, optimizers=optimizers))
    assert f'gobrrr.apply("rx.json", {given})' in _following(found, "a.py:b", frozenset(), Path("rx.json"))


def test_all_treatments_are_listed(gobrrr):
    code, out, _ = gobrrr("treat", "--list")
    assert code == 0
    assert all(name in out for name in TREATMENTS)


@pytest.mark.parametrize(
    ("args", "said"), [((), "nothing to treat"), (("a.py:b", "--allow", "fp7"), "fp7"), (("a.py:b",), "no file")]
)
def test_what_makes_no_sense_is_a_usage_error(gobrrr, args, said):
    code, _, err = gobrrr("treat", *args)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("option", ["--keep", "-o"])
def test_where_nothing_can_be_written_nothing_is_searched(gobrrr, tmp_path, option):
    (tmp_path / "a.py").write_text("raise AssertionError('nobody asked for it')")
    for path in (tmp_path / "a.py" / "found.json", tmp_path):
        code, _, err = gobrrr("treat", f"{tmp_path}/a.py:b", option, str(path))
        assert code == 2
        assert "nobody asked" not in err


@pytest.mark.parametrize("option", ["--keep", "-o"])
def test_a_file_that_cannot_be_written_after_all_loses_nothing_that_was_found(gobrrr, written, monkeypatch, option):
    monkeypatch.setattr(treat_command, "_treated", lambda *_: treated())
    monkeypatch.setattr("gobrrr.schema.write_whole", lambda *_: throw(Missing("the disk is full")))
    code, out, err = gobrrr("treat", written(TRAINED), "--json", option, "found.json")
    assert code == 6
    assert json.loads(out)["baseline_s"] > 0
    assert "the disk is full" in err


def throw(error: Exception) -> None:
    raise error


def test_the_predicted_gain_is_the_product_of_those_kept(monkeypatch):
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    result = treat(lambda: training(foreach=False), "made.py:up")
    assert result.kept
    assert result.predicted_speedup == pytest.approx(math.prod(one.predicted for one in result.kept))


def always_won(*_args, **_options) -> Race:
    return Race(((1.0, 1.0),) * 5, ((0.5, 0.5),) * 5)


def test_what_fails_in_the_last_race_is_not_kept_and_the_rest_is_told(monkeypatch):
    def fails(*_args, **_options):
        raise RuntimeError("not twice")

    monkeypatch.setattr(treating, "TREATMENTS", {"fused-optimizer": TREATMENTS["fused-optimizer"]})
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    monkeypatch.setattr(treating, "raced", fails)
    made = training()
    found = treat(lambda: made, "made.py:up")
    assert not found.kept
    assert not found.prescription.doses
    assert found.speedup == 1
    assert {one.reason for one in found.rejected} == {"failed in the last race: RuntimeError: not twice"}
    assert made.optimizer.param_groups[0]["fused"] is None


def test_a_prescription_is_for_the_model_as_it_came(monkeypatch):
    """Also where a treatment puts other modules in the place of its own."""
    monkeypatch.setattr(treating, "TREATMENTS", {"int8-dynamic": TREATMENTS["int8-dynamic"]})
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    made = inference()
    found = treat(lambda: made, "made.py:up", allow=["int8"])
    assert [one.treatment for one in found.prescription.doses] == ["int8-dynamic"]
    assert found.prescription.model == fingerprint_of({"model": made.model})


def test_a_loss_is_no_model_that_a_prescription_would_ask_for(monkeypatch):
    monkeypatch.setattr(treating, "TREATMENTS", {})
    made, loss, x = training(), torch.nn.MSELoss(), torch.randn(8, 16)
    found = treat(lambda: lambda: loss(made.model(x), x[:, :4]), "made.py:up")
    assert found.prescription.models == 1


def test_a_type_that_nothing_is_treated_with_may_be_allowed_and_is_told(monkeypatch):
    monkeypatch.setattr(treating, "TREATMENTS", {"int8-dynamic": TREATMENTS["int8-dynamic"]})
    found = treat(inference, "made.py:up", allow=["int8", "fp8"])
    assert [one for one in found.warnings if "--allow" in one] == [
        "nothing is treated with fp8 yet: --allow fp8 allows nothing"
    ]


def test_code_that_cannot_be_written_loses_nothing_that_was_found(monkeypatch):
    def fails(*_):
        raise AttributeError("__code__")

    monkeypatch.setattr(treating, "written_out", fails)
    monkeypatch.setattr(treating, "TREATMENTS", {"fused-optimizer": TREATMENTS["fused-optimizer"]})
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    (kept,) = treat(lambda: training(foreach=False), "made.py:up").kept
    assert kept.by_hand == TREATMENTS["fused-optimizer"].by_hand


def test_memory_is_told_before_and_after(monkeypatch):
    monkeypatch.setattr(treating, "TREATMENTS", {"fused-optimizer": TREATMENTS["fused-optimizer"]})
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    monkeypatch.setattr(treating, "peak_bytes", lambda *_: 5)
    monkeypatch.setattr("gobrrr.treat.trial.peak_bytes", lambda *_: 7)
    found = treat(lambda: training(foreach=False), "made.py:up")
    assert (found.memory_before_bytes, found.memory_after_bytes) == (5, 7)
    assert [one.treatment for one in found.kept] == ["fused-optimizer"]


def test_what_was_not_examined_as_treated_has_no_advice(monkeypatch):
    """The budget ended before; where nothing is kept in the end the step as it came is known."""
    monkeypatch.setattr(treating, "TREATMENTS", {"fused-optimizer": TREATMENTS["fused-optimizer"]})
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)
    monkeypatch.setattr("gobrrr.treat.search.Search._is_spent", lambda search: bool(search.kept))
    found = treat(lambda: training(foreach=False), "made.py:up")
    assert found.kept
    assert found.advice is None
    monkeypatch.setattr(
        treating, "_confirmed", lambda search, final: (search.disown("luck"), treating._unchanged(final.before))[1]
    )
    found = treat(lambda: training(foreach=False), "made.py:up")
    assert not found.kept
    assert found.advice is not None


def test_every_treatment_is_told_of_to_its_users():
    page = (Path(__file__).parents[1] / "docs" / "treating.md").read_text()
    assert not [name for name in TREATMENTS if f"`{name}`" not in page]
