"""What vendors say their accelerators can do: shown beside what was measured, or used for a machine we lack.

Rates are dense: a figure that counts skipped zeros ("with sparsity") is halved before it comes here. A device
is found by its exact name or not at all; there is no card that stands for the unknown ones.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """One accelerator as its vendor sees it. None is unknown; a mode that it lacks is absent."""

    id: str
    vendor: str
    architecture: str
    year: int
    aliases: tuple[str, ...]
    """As drivers spell it. Without any, no driver's name tells this part from its siblings."""
    memory_bytes: int
    memory_type: str
    dram_bytes_per_s: float
    multiprocessors: int
    base_clock_hz: float | None
    boost_clock_hz: float | None
    vector_flops_per_s: Mapping[str, float]
    matmul_flops_per_s: Mapping[str, float]
    l2_bytes: int | None
    last_level_cache_bytes: int | None
    """Behind the L2, where there is one."""
    link_bytes_per_s: float | None
    """To other accelerators, each direction."""
    host_link_bytes_per_s: float | None
    """Each direction."""
    power_w: float | None
    source: str
    doubts: str

    @property
    def rates(self) -> dict[str, float]:
        """All that `Ceilings` measures too, under the same dotted keys."""
        found = {f"matmul_flops_per_s.{mode}": rate for mode, rate in self.matmul_flops_per_s.items()}
        found |= {f"vector_flops_per_s.{dtype}": rate for dtype, rate in self.vector_flops_per_s.items()}
        found |= {"dram_bytes_per_s": self.dram_bytes_per_s}
        if self.host_link_bytes_per_s is not None:
            found |= dict.fromkeys(("h2d_bytes_per_s", "d2h_bytes_per_s"), self.host_link_bytes_per_s)
        return found


def find(name: str) -> Datasheet | None:
    """The sheet of the device with exactly this name or id; None for any other, however alike.

    "NVIDIA H100 PCIe" has two thirds of the bandwidth of "NVIDIA H100 80GB HBM3": close is wrong.
    """
    return _by_name().get(_normal(name))


def meant(name: str) -> Datasheet | None:
    """The part that a person or a table means by `h100`, `a100_sxm`, `4090`, `DGX-1 (1x V100 16GB)`.

    Whatever the name says has to hold of the part: `RTX 3080 Ti`, `H800`, `P100 12GB` and `8x A100` are none of ours.
    Of those that it leaves open, one that drivers know by name, on an SXM module, with the most memory. For whoever
    asks about a kind of card, and is told which was taken; a device that is there is found by `find`.
    """
    known = find(name.replace("_", " "))
    if known and known.aliases:
        return known
    spelled = re.sub(r"max[^a-z0-9]q", "maxq", name.lower().replace("_", " "))
    parts = [sheet for sheet in all_sheets() if _model(sheet.id).search(spelled) and _holds(spelled, sheet)]
    for quality in _QUALITIES:
        if re.search(quality, spelled):
            parts = [sheet for sheet in parts if re.search(quality, sheet.id)] or parts
    return max(parts, key=lambda sheet: (bool(sheet.aliases), "sxm" in sheet.id, sheet.memory_bytes), default=None)


_QUALITIES = ("pcie", "nvl(?!ink)", "sxm|dgx|hgx", "server", "workstation", "maxq", "gcd")
"""By which parts of one model differ; a model in one part alone goes by any of them."""

_OTHERS = {"ti", "super", "d", "laptop", "mobile", "ada", "mig", "max", "maxq"}
"""Words that make another model of the one they stand beside."""

_IDENTIFIED = re.compile(r"^(?:rtx-?|gtx|rx|cpu-[a-z]+\d?-)?(.+?)(?:-(?:sxm\d?|pcie|nvl|gcd|bw|\d\d(?:gb)?)(?:-.*)?)?$")
"""An id: the series, which a name may leave out, the model, and the part."""


@cache
def _model(id_: str) -> re.Pattern[str]:
    """The model as it stands in a name: `3090`, `a100`, `pro 6000`, but not in `a1000` or `a100x`."""
    written = r"[^a-z0-9]*".join(re.findall(r"[a-z]+|\d+", _IDENTIFIED.sub(r"\1", id_)))
    return re.compile(rf"(?:^|[^a-z0-9]|1x|rtx|gtx|rx){written}(?=[^a-z0-9]|$|{'|'.join(_QUALITIES)})")


def _holds(spelled: str, sheet: Datasheet) -> bool:
    """One card, no word of another model, no other size of memory than its own or than drivers give it."""
    if re.search(r"(?<![a-z0-9])(?:[2-9]|\d\d) ?x(?![0-9])", spelled):
        return False
    own = " ".join((*sheet.aliases, sheet.id, sheet.architecture)).lower().replace("max-q", "maxq")
    others = _OTHERS & set(re.findall(r"[a-z]+", spelled))
    sizes = _sizes(spelled) - _sizes(own)
    return others <= set(re.findall(r"[a-z]+", own)) and all(0.9 < size / sheet.memory_bytes < 1.1 for size in sizes)


def _sizes(spelled: str) -> set[int]:
    return {int(size) << 30 for size in re.findall(r"(?<![a-z0-9])(\d+) ?gi?b?(?![a-z0-9])", spelled)}


def near(name: str) -> list[str]:
    """Ids that whoever typed this may have meant."""
    by_name = _by_name()
    close = get_close_matches(_normal(name), by_name, n=6, cutoff=0.5)
    begun = [known for known, sheet in by_name.items() if sheet.id.startswith(_normal(name))]
    return list(dict.fromkeys(by_name[known].id for known in (*begun, *close)))[:5]


@cache
def all_sheets() -> tuple[Datasheet, ...]:
    text = files("gobrrr.machine").joinpath("datasheets.csv").read_text(encoding="utf-8")
    return tuple(_sheet(row) for row in csv.DictReader(text.splitlines()))


@cache
def _by_name() -> dict[str, Datasheet]:
    names: dict[str, Datasheet] = {}
    for sheet in all_sheets():
        for name in (sheet.id, *sheet.aliases):
            assert names.setdefault(_normal(name), sheet) is sheet, f"two datasheets answer to {name}"
    return names


def _normal(name: str) -> str:
    return " ".join(name.lower().split())


def _sheet(row: Mapping[str, str]) -> Datasheet:
    return Datasheet(
        id=row["id"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        year=int(row["year"]),
        aliases=tuple(filter(None, row["aliases"].split("|"))),
        memory_bytes=int(row["memory_bytes"]),
        memory_type=row["memory_type"],
        dram_bytes_per_s=float(row["dram_bytes_per_s"]),
        multiprocessors=int(row["multiprocessors"]),
        base_clock_hz=_number(row["base_clock_hz"]),
        boost_clock_hz=_number(row["boost_clock_hz"]),
        vector_flops_per_s=_rates(row, "vector"),
        matmul_flops_per_s=_rates(row, "matmul"),
        l2_bytes=_whole(row["l2_bytes"]),
        last_level_cache_bytes=_whole(row["last_level_cache_bytes"]),
        link_bytes_per_s=_number(row["link_bytes_per_s"]),
        host_link_bytes_per_s=_number(row["host_link_bytes_per_s"]),
        power_w=_number(row["power_w"]),
        source=row["source"],
        doubts=row["doubts"],
    )


def _rates(row: Mapping[str, str], unit: str) -> dict[str, float]:
    """Columns `matmul_bf16_flops_per_s` and their like, by the type in their middle."""
    columns = [
        name.removeprefix(f"{unit}_").removesuffix("_flops_per_s") for name in row if name.startswith(f"{unit}_")
    ]
    return {dtype: float(rate) for dtype in columns if (rate := row[f"{unit}_{dtype}_flops_per_s"])}


def _number(text: str) -> float | None:
    return float(text) if text else None


def _whole(text: str) -> int | None:
    return int(text) if text else None
