"""What a notebook shows of results, and the cell magic."""

import json

import pytest

pytest.importorskip("IPython", reason="no IPython, which runs notebooks")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from gobrrr.errors import UsageError
from gobrrr.integrations.notebook import VEGA_LITE, outputs, step_of
from gobrrr.report import markdown
from gobrrr.report.examined import Examined
from reported import bert, compared, kept_lab, predicted, treated
from test_examination import probed

__all__ = ["probed"]


@pytest.fixture
def shell():
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gobrrr")
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "result", [bert(), bert().exam, compared(), predicted(), treated(), kept_lab()], ids=lambda one: type(one).__name__
)
def test_a_result_is_text_with_its_charts(result):
    shown = list(outputs(result))
    assert shown[0]["text/markdown"] == shown[0]["text/plain"]
    for chart in shown[1:]:
        spec = json.loads(json.dumps(chart[VEGA_LITE], allow_nan=False))
        assert spec["$schema"].endswith("/v5.json")
        assert isinstance(spec["width"], int)


def test_the_roofline_of_a_step_has_its_bubbles_with_it():
    _, chart = outputs(bert())
    assert len(chart[VEGA_LITE]["datasets"]["ops"]) > 50


def test_charts_are_valid_for_the_version_that_notebooks_draw():
    convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, which checks charts")
    for result in (bert(), predicted(), kept_lab()):
        for chart in list(outputs(result))[1:]:
            assert "<svg" in convert.vegalite_to_svg(chart[VEGA_LITE], vl_version="5.20")


def test_the_last_expression_of_a_cell_is_shown(shell):
    shell.user_ns["result"] = bert()
    with capture_output() as captured:
        shell.run_cell("result")
    text, chart = captured.outputs
    assert text.data["text/markdown"] == markdown.step(bert())
    assert VEGA_LITE in chart.data


def test_a_cell_is_examined_as_a_step_and_leaves_nothing_behind(shell, probed):
    shell.run_cell("import torch\nmodel = torch.nn.Linear(4, 4)\nx = torch.ones(2, 4)")
    weight = shell.user_ns["model"].weight
    with capture_output():
        ran = shell.run_cell("%%gobrrr\ny = model(x)\ny.sum().backward()")
    assert ran.success
    assert isinstance(ran.result, Examined)
    assert (ran.result.exam.target, "y" in shell.user_ns, weight.grad) == ("cell", False, None)
    assert {row.source for row in ran.result.diagnosis.ops} >= {"cell:1", "cell:2"}


def test_an_empty_cell_is_no_step():
    with pytest.raises(UsageError, match="the cell is empty"):
        step_of("# nothing\n", {})
