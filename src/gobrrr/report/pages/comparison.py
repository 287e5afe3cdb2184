"""The page of a comparison: the difference, and what made it."""

from gobrrr.report.difference import difference_view
from gobrrr.report.examined import Compared
from gobrrr.report.page import rendered


def render(compared: Compared) -> str:
    view = difference_view(compared)
    before, after = view.sides
    return rendered(
        "comparison.html",
        title=f"{before.view.target} → {after.view.target}",
        heading=(
            f"{before.view.target} → {after.view.target}",
            *dict.fromkeys((before.view.machine, after.view.machine)),
        ),
        sections={"regimes": "Where the time goes", "changes": "Ops that changed"},
        specs={},
        view=view,
    )
