"""What fusion saves: intermediate results that never reach memory, and what it cannot save: arithmetic.

All write into memory that is there, for a new result on a CPU costs page faults, and they cost more than the bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr import units
from gobrrr.lab.claim import Check, Claim, judged, near, untestable
from gobrrr.lab.compiling import compiled
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import NotHere, Site, known
from gobrrr.workload import Step

if TYPE_CHECKING:
    import torch

ACTIVATIONS = ("sigmoid", "tanh", "silu", "gelu", "softplus")
"""Besides relu, whose `out` variant is a result of its own and a copy of it."""

ALIKE = 1.25
"""Activations cost about the same if the slowest takes at most so many times what the quickest does."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do a thing."""

    group: str
    name: str
    seconds: float
    bytes: float
    floor_s: float | None
    regime: str


@experiment("what does fusing save, and what not?", "c09", "c10", "c16", "c23")
def fusion(site: Site) -> Found:
    import torch

    memory = known(site.ceilings("dram", "cache").dram_bytes_per_s, "memory bandwidth")
    bench = _Ways(site, [], {})
    x = torch.rand(site.sizes.elements, device=site.device)
    with torch.no_grad():
        _cosines(bench, x)
        _activations(bench, x)
        error = _chain(bench, x)
        _casts(bench, x.bfloat16())
        del x
        _epilogue(bench)
    return Found(bench.taken, judge(bench.taken, memory, error, bench.missing), tuple(_drawings()))


@dataclass(frozen=True, slots=True)
class _Ways:
    """Takes ways one by one, and notes why one cannot be taken here."""

    site: Site
    taken: list[Way]
    reasons: dict[str, str]

    @property
    def missing(self) -> str | None:
        return next(iter(self.reasons.values()), None)

    def take(self, group: str, name: str, step: Step) -> None:
        self._keep(group, name, step, fused=False)

    def take_fused(self, group: str, name: str, function: Callable[..., Any], *args: Any) -> None:
        try:
            step = compiled(function, *args)
        except NotHere as reason:
            self.reasons[name] = str(reason)
        else:
            self._keep(group, name, step, fused=True)

    def _keep(self, group: str, name: str, step: Step, *, fused: bool) -> None:
        seen = self.site.weighed(step, name, fused=fused)
        self.taken.append(Way(group, name, seen.seconds, seen.bytes, seen.floor_s, seen.regime))


def _cosines(ways: _Ways, x: "torch.Tensor") -> None:
    import torch

    between, out = torch.empty_like(x), torch.empty_like(x)

    def pair() -> None:
        torch.cos(x, out=between)
        torch.cos(between, out=out)

    def fused(x: "torch.Tensor", out: "torch.Tensor") -> None:
        out.copy_(x.cos().cos())

    ways.take("cos", "one cos", lambda: torch.cos(x, out=out))
    ways.take("cos", "cos of cos", pair)
    ways.take_fused("cos", "cos of cos, fused", fused, x, out)


def _activations(ways: _Ways, x: "torch.Tensor") -> None:
    import torch

    out = torch.empty_like(x)
    ways.take("activation", "relu", partial(torch.clamp_min, x, 0, out=out))
    for name in ACTIVATIONS:
        ways.take("activation", name, partial(getattr(torch.ops.aten, name).out, x, out=out))


def _chain(ways: _Ways, x: "torch.Tensor") -> float:
    """Four passes over 36 bytes an element, or one over 12. The largest difference in result, relative."""
    import torch

    y, out = torch.rand_like(x), torch.empty_like(x)

    def apart() -> None:
        torch.mul(x, 3.0, out=out)
        out.sub_(y).relu_().mul_(0.5)

    def fused(x: "torch.Tensor", y: "torch.Tensor", out: "torch.Tensor") -> None:
        out.copy_((x * 3.0 - y).relu() * 0.5)

    ways.take("chain", "four ops", apart)
    expected = out.clone()
    ways.take_fused("chain", "four ops, fused", fused, x, y, out)
    return float((out - expected).abs().max() / expected.abs().max())


def _casts(ways: _Ways, x: "torch.Tensor") -> None:
    import torch

    out = torch.empty_like(x)
    wide = torch.empty_like(x, dtype=torch.float32)

    def around() -> None:
        wide.copy_(x)
        wide.mul_(0.5)
        out.copy_(wide)

    def fused(x: "torch.Tensor", out: "torch.Tensor") -> None:
        out.copy_(x * 0.5)

    def fused_around(x: "torch.Tensor", out: "torch.Tensor") -> None:
        out.copy_((x.float() * 0.5).bfloat16())

    ways.take("cast", "cast", lambda: wide.copy_(x))
    ways.take("cast", "scale", lambda: torch.mul(x, 0.5, out=out))
    ways.take("cast", "cast, scale, cast", around)
    ways.take_fused("cast", "scale, compiled", fused, x, out)
    ways.take_fused("cast", "cast, scale, cast, fused", fused_around, x, out)


def _epilogue(ways: _Ways) -> None:
    """A product whose bias and activation are passes of their own, or done before it is stored."""
    import torch

    rows, inner, columns = ways.site.sizes.product
    options = {"device": ways.site.device, "dtype": getattr(torch, ways.site.sizes.half)}
    a, b = torch.randn(rows, inner, **options), torch.randn(inner, columns, **options)
    bias, out = torch.randn(columns, **options), torch.empty(rows, columns, **options)

    def apart() -> None:
        torch.mm(a, b, out=out)
        out.add_(bias).relu_()

    def fused(a: "torch.Tensor", b: "torch.Tensor", bias: "torch.Tensor", out: "torch.Tensor") -> None:
        out.copy_((a @ b + bias).relu())

    ways.take("epilogue", "product", lambda: torch.mm(a, b, out=out))
    ways.take("epilogue", "product + bias + relu", apart)
    ways.take("epilogue", "with bias + relu", lambda: torch.addmm(bias, a, b, out=out).relu_())
    ways.take_fused("epilogue", "all, compiled", fused, a, b, bias, out)


def judge(
    points: Sequence[Way], memory_bytes_per_s: float, error: float, missing: str | None = None
) -> tuple[Claim, ...]:
    ways = {way.name: way for way in points}
    activations = _same_cost([way for way in points if way.group == "activation"])
    if missing is not None:
        return (untestable("c09", missing), activations, untestable("c16", missing), untestable("c23", missing))
    return (
        _fused_pair(ways, memory_bytes_per_s),
        activations,
        _fused_chain(ways, error),
        _round_trips(ways, memory_bytes_per_s),
    )


def _fused_pair(ways: Mapping[str, Way], memory: float) -> Claim:
    one, pair, fused = (ways[name] for name in ("one cos", "cos of cos", "cos of cos, fused"))
    return judged(
        "c09",
        f"fused {units.times(pair.seconds / fused.seconds)} faster, {units.times(fused.seconds / one.seconds)} one cos",
        [
            near("bytes of the fused pair over those of the unfused", fused.bytes / pair.bytes, 0.5, 1.001),
            Check("fused pair over one cos", fused.seconds / one.seconds, high=1.2),
            Check("unfused pair over fused", pair.seconds / fused.seconds, low=1.7),
        ],
        _what_binds(one, memory, "one cos") + "; " + _what_binds(fused, memory, "the fused pair"),
    )


def _what_binds(way: Way, memory: float, what: str) -> str:
    moving = units.seconds(way.bytes / memory)
    if way.regime == "compute":
        return f"{what} is compute-bound here: its arithmetic takes {units.seconds(way.floor_s)}, its bytes {moving}"
    return f"{what} is {way.regime}-bound: its bytes take {moving} and hide its arithmetic"


def _same_cost(ways: Sequence[Way]) -> Claim:
    quick, slow = (pick(ways, key=lambda way: way.seconds) for pick in (min, max))
    bound = [way.name for way in ways if way.regime == "compute"]
    why = "by count all are bandwidth-bound, and all move the same bytes"
    if bound:
        why = f"the arithmetic of {', '.join(bound)} takes longer than the bytes, which are the same for all"
    if slow.floor_s:
        why += f"; {slow.name} takes {units.times(slow.seconds / slow.floor_s, 2)} its floor"
    return judged(
        "c10",
        f"{slow.name} {units.times(slow.seconds / quick.seconds)} {quick.name}",
        [Check("slowest over quickest", slow.seconds / quick.seconds, high=ALIKE)],
        why,
    )


def _fused_chain(ways: Mapping[str, Way], error: float) -> Claim:
    apart, fused = ways["four ops"], ways["four ops, fused"]
    product, epilogue = ways["product + bias + relu"], ways["with bias + relu"]
    return judged(
        "c16",
        f"{units.times(apart.seconds / fused.seconds)}, results differ by {error:.1g}",
        [
            Check("the chain apart over fused", apart.seconds / fused.seconds, low=2),
            Check("largest relative difference of the results", error, high=1e-6),
        ],
        f"the bytes fall by {units.times(apart.bytes / fused.bytes)}; a product, which they do not bind, runs "
        f"{units.times(product.seconds / epilogue.seconds)} as fast with its bias in the epilogue and "
        f"{units.times(product.seconds / ways['all, compiled'].seconds)} compiled",
    )


def _round_trips(ways: Mapping[str, Way], memory: float) -> Claim:
    cast, plain, around = (ways[name] for name in ("cast", "scale", "cast, scale, cast"))
    compiled_s = [ways[name].seconds for name in ("cast, scale, cast, fused", "scale, compiled")]
    eager, fused = around.seconds / plain.seconds, compiled_s[0] / compiled_s[1]
    return judged(
        "c23",
        f"with two casts {units.times(eager)} eager, {units.times(fused)} compiled",
        [
            Check("a cast's time over that of its bytes", cast.seconds * memory / cast.bytes, 0.8, 1.5),
            Check("eager, with casts over without", eager, low=2),
            Check("compiled, with casts over without: 2 if they were trips too", fused, low=2),
        ],
        f"eager, the bytes grow by {units.times(around.bytes / plain.bytes)}; compiled, the casts happen in registers",
    )


def _drawings() -> Iterator[Drawing]:
    titles = {
        "cos": "cos(cos(x))",
        "activation": "activation functions",
        "chain": "a chain of four",
        "cast": "casts",
        "epilogue": "bias and relu after a product",
    }
    for group, title in titles.items():
        yield Drawing(
            "bars",
            title,
            Column("name", "way"),
            Column("seconds", "time", "s"),
            (Column("bytes", "bytes", "B"), Column("floor_s", "floor", "s"), Column("regime", "regime")),
            only={"group": group},
        )
