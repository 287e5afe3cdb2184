"""The page of a treatment: the waterfall from the step as it was to its floors, and what became of each idea."""

from gobrrr.report.charts.waterfall import waterfall
from gobrrr.report.page import rendered
from gobrrr.report.waterfall import UNKNOWN_ADVICE, treatment_view
from gobrrr.treat.outcome import Treated


def render(found: Treated) -> str:
    view = treatment_view(found)
    return rendered(
        "treatment.html",
        title=f"{view.target}: treated",
        heading=(view.target, view.machine, "treated"),
        sections={
            "waterfall-section": "Waterfall",
            "kept": "Kept",
            "rejected": "Rejected",
            "not-tried": "Not tried",
            "left": "Left to you",
        },
        specs={"waterfall": waterfall(view.levels)},
        view=view,
        unknown_advice=UNKNOWN_ADVICE,
    )
