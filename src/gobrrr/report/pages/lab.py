"""The lab as an illustrated page: each claim with what was measured on this machine, and the picture of it."""

from gobrrr.lab.claim import Verdict
from gobrrr.lab.result import Lab
from gobrrr.report.charts.drawing import drawing
from gobrrr.report.lab import shown, tally
from gobrrr.report.page import rendered
from gobrrr.report.plain import plain

_LOOKS = {
    Verdict.HOLDS: "holds",
    Verdict.IN_PART: "in-part",
    Verdict.FAILS: "fails",
    Verdict.UNTESTABLE: "untestable",
}


def render(lab: Lab) -> str:
    names = {
        f"{result.name}-{number}": (one, points)
        for result in lab.experiments
        for number, one in enumerate(result.drawings)
        if (points := list(shown(one, result.points)))
    }
    return rendered(
        "lab.html",
        title=f"the lab on {plain(lab.device)}",
        heading=(
            "lab",
            plain(lab.device),
            f"torch {plain(lab.torch or '?')}",
            f"{lab.threads} threads",
            lab.made_at[:10],
        ),
        sections={result.name: result.name for result in lab.experiments},
        specs={name: drawing(one, points) for name, (one, points) in names.items()},
        lab=lab,
        tally=tally(lab),
        looks=_LOOKS,
        titles={name: one.title for name, (one, _) in names.items()},
        doubts=[plain(doubt) for doubt in lab.doubts],
    )
