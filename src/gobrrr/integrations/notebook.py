"""Notebooks: `%load_ext gobrrr` shows every result as text with its charts, and `%%gobrrr` examines a cell.

The cell is a step, by the rules of `%%timeit`: it runs many times within a function, so that what it assigns is its own
and what it changes is put back. Charts are Vega-Lite, which notebooks draw by themselves.
"""

import ast
from collections.abc import Callable, Iterator
from functools import singledispatch
from importlib import import_module
from typing import Any, TypeAlias

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import UsageError
from gobrrr.exam import Exam
from gobrrr.lab.result import Lab
from gobrrr.predict.prediction import Predictions
from gobrrr.report import lab, markdown, picture
from gobrrr.report.charts.base import Spec, config
from gobrrr.report.charts.drawing import drawing
from gobrrr.report.charts.predictions import predictions
from gobrrr.report.charts.waterfall import waterfall
from gobrrr.report.examined import Compared, Examined
from gobrrr.report.waterfall import treatment_view
from gobrrr.treat.outcome import Treated

Bundle: TypeAlias = dict[str, Any]
"""One output of a cell, by MIME type."""

VEGA_LITE = "application/vnd.vegalite.v5+json"
CELL = "cell"
"""What an op's line is said to be in."""


def load(ipython: Any) -> None:
    shows = ipython.display_formatter.ipython_display_formatter
    for kind in (Exam, Examined, Compared, Predictions, Treated, Lab):
        shows.for_type(kind, _show)
    ipython.register_magic_function(_magic(ipython), "cell", "gobrrr")


def _show(result: Any) -> None:
    display: Any = import_module("IPython.display").display
    for bundle in outputs(result):
        display(bundle, raw=True)


@singledispatch
def outputs(result: Any) -> Iterator[Bundle]:
    """What a cell shows of a result, one after the other."""
    raise TypeError(f"{type(result).__name__} is no result that a cell could show")


@outputs.register
def _(result: Exam) -> Iterator[Bundle]:
    yield from outputs(Examined(result, diagnose(result)))


@outputs.register
def _(result: Examined) -> Iterator[Bundle]:
    yield _text(markdown.step(result))
    yield _chart(picture.roofline(result), "roofline")


@outputs.register
def _(result: Compared) -> Iterator[Bundle]:
    yield _text(markdown.comparison(result))


@outputs.register
def _(result: Predictions) -> Iterator[Bundle]:
    yield _text(markdown.predictions(result))
    yield _chart(predictions(result), "predictions")


@outputs.register
def _(result: Treated) -> Iterator[Bundle]:
    yield _text(markdown.treatment(result))
    yield _chart(waterfall(treatment_view(result).levels), "waterfall")


@outputs.register
def _(result: Lab) -> Iterator[Bundle]:
    yield _text(lab.markdown(result))
    for experiment in result.experiments:
        for one in experiment.drawings:
            points = list(lab.shown(one, experiment.points))
            yield _chart({**drawing(one, points), "title": one.title}, one.title)


def _text(text: str) -> Bundle:
    return {"text/plain": text, "text/markdown": text}


def _chart(spec: Spec, name: str) -> Bundle:
    """Without the page around it: colours of its own, and a width, for a notebook has no container to fill."""
    drawn = {"config": {**config(), "background": "white"}, **spec, "width": picture.WIDTH}
    return {"text/plain": f"a chart: {name}", VEGA_LITE: drawn}


def _magic(ipython: Any) -> Callable[[str, str], Examined]:
    def gobrrr(line: str, cell: str) -> Examined:
        """Examine the cell as a step: time it, count its work, say what limits it."""
        from gobrrr.examination import examine

        if line.strip():
            raise UsageError(f"%%gobrrr takes no arguments, and there are {line.strip()!r}")
        step = step_of(ipython.transform_cell(cell), ipython.user_ns)
        exam = examine(lambda: step, CELL)
        return Examined(exam, diagnose(exam))

    return gobrrr


def step_of(code: str, names: dict[str, Any]) -> Callable[[], None]:
    """The cell as a function of the notebook's names."""
    body = ast.parse(code, CELL).body
    if not body:
        raise UsageError("the cell is empty: what stands in it is the step")
    tree = ast.parse("def step(): pass")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), CELL, "exec"), names, made)  # noqa: S102 (a cell is the user's own)
    step: Callable[[], None] = made["step"]
    return step
