"""B501: a finding that could not be looked for."""

from gobrrr.diagnose.findings.finding import BROKEN, Case, Stake, finding


@finding(
    BROKEN,
    "a finding that could not be looked for",
    explanation="Looking for this problem failed on this Exam. The other findings are not touched by it.",
    reads="an error of gobrrr's own while it read the Exam",
    treatment="report this as a bug of gobrrr, with the Exam's file",
    fix="""
    gobrrr show last --json > diagnosis.json  # says which finding broke, and how
    """,
    unless="Never ours to excuse.",
)
def broken(_: Case) -> Stake | None:
    """Never found by looking: whoever looks and fails reports it."""
    return None
