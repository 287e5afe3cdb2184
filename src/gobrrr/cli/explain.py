"""`gobrrr explain`."""

from typing import TYPE_CHECKING

import click

from gobrrr import schema

if TYPE_CHECKING:
    from gobrrr.report.explain import Page


@click.command("explain")
@click.argument("code", default="")
@click.option("--markdown", is_flag=True, help="As a document, as in docs/findings.md.")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(code: str, *, markdown: bool, as_json: bool) -> None:
    """Say what a finding means, what it is read from, what helps and when not to; without CODE, list them all.

    CODE may be the beginning of several, as B2 of all findings about bandwidth.
    """
    from gobrrr.report import explain

    pages = explained(code)
    if as_json:
        click.echo(schema.dumps(explain.Pages(pages)))
    elif markdown:
        click.echo(explain.markdown(pages))
    else:
        from rich.console import Console

        shown = explain.render(pages[0]) if len(pages) == 1 else explain.listing(pages)
        Console(highlight=False).print(shown)


def explained(code: str = "") -> "tuple[Page, ...]":
    """The pages of all findings whose code begins so."""
    from gobrrr.diagnose.findings import selected
    from gobrrr.report.explain import page

    return tuple(page(rule, _patient(rule.code)) for rule in selected([code] if code else []))


def _patient(code: str) -> str:
    from gobrrr.patients import PATIENTS, WITHOUT

    if code not in PATIENTS:
        return f"no model has this: {WITHOUT[code]}"
    patient = PATIENTS[code]
    only = "" if "cpu" in patient.devices else ", on a GPU"
    return f"gobrrr demo {code} examines one that {patient.about}{only}; with --healthy, its twin"
