"""The page of predictions: accelerators side by side with their intervals, and what changes would bring."""

from gobrrr.predict.prediction import Predictions
from gobrrr.report.charts.predictions import predictions
from gobrrr.report.page import rendered
from gobrrr.report.plain import plain


def render(found: Predictions) -> str:
    return rendered(
        "predictions.html",
        title=f"{plain(found.target)}: predicted",
        heading=(plain(found.target), "by datasheet, nothing ran"),
        sections={"accelerators": "Accelerators", "what-if": "What if"},
        specs={"predictions": predictions(found)},
        found=found,
        best=min(found.predictions, key=lambda one: (one.fits is False, one.step_s)),
    )
