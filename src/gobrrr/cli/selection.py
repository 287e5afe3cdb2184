"""`--select` and `--ignore`, for every command that prints findings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gobrrr.diagnose.findings import Rule

C = TypeVar("C", bound=Callable[..., Any])


def selecting(command: C) -> C:
    """Adds both options; the command gets their texts as `select` and `ignore`."""
    only = click.option("--select", metavar="CODES", default="", help="Look only for these findings: B2 or B201,B301.")
    but = click.option("--ignore", metavar="CODES", default="", help="Do not look for these.")
    return only(but(command))


def selected_rules(select: str, ignore: str) -> "tuple[Rule, ...]":
    """A usage error that names near ones if a code begins none of ours."""
    from gobrrr.diagnose.findings import selected

    return selected(_codes(select), _codes(ignore))


def _codes(text: str) -> list[str]:
    return [code for code in text.split(",") if code.strip()]
