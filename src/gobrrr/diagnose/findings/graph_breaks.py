"""B106: a compiled step that falls back to Python in between."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding

SHOWN = 3
"""Reasons listed, the most frequent first."""


@finding(
    "B106",
    "graph breaks",
    explanation=(
        "The compiler met something that it could not take into a graph, ended the graph there, went through Python "
        "and began another one. Nothing is fused across a break, and every piece has its own guards and launches. "
        "What that costs is not known before it is gone, so no seconds are given; chains that a break keeps apart "
        "stand in B201."
    ),
    reads="breaks that torch.compile counted while the step was built and warmed up",
    treatment=(
        "torch.compile(fullgraph=True) names the first one; keep prints, .item() and data-dependent branches outside"
    ),
    fix="""
    model = torch.compile(model, fullgraph=True)  # raises at the first break, with its reason
    x = torch.where(x.sum() > 0, x, -x)  # was: x if x.sum().item() > 0 else -x
    """,
    unless="One break between the model and its loss is a piece more, not a disease.",
)
def graph_breaks(case: Case) -> Stake | None:
    compilation = case.exam.compilation
    if compilation is None or not compilation.breaks:
        return None
    often = sorted(compilation.breaks.items(), key=lambda item: -item[1])
    number = sum(compilation.breaks.values())
    return Stake(
        None,
        None,
        (
            f"{number} graph break{'s' if number > 1 else ''} for {len(often)} reason{'s' if len(often) > 1 else ''}",
            *(f"{reason} ({times} times)" if times > 1 else reason for reason, times in often[:SHOWN]),
        ),
    )
