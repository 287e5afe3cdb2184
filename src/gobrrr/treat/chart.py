"""A Chart: what is known of a subject when a treatment is weighed: its Exam, the diagnosis, and what it is made of."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from gobrrr.diagnose.attribute import Attributed, attribute, queued_gaps_s
from gobrrr.diagnose.compulsory import compulsory_floor
from gobrrr.diagnose.counterfactual import Sides, at_stake
from gobrrr.diagnose.diagnosis import limiter
from gobrrr.diagnose.findings import FINDINGS, Case
from gobrrr.diagnose.floor import floor
from gobrrr.diagnose.fusion import GroupFloor, fused_floor
from gobrrr.exam import Exam
from gobrrr.predict.step import beside_products
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.work import total

REACHED = 0.8
"""Of the bandwidth that a generated or fused kernel attains, as a rule: what a floor has to be divided by."""

UNSURE = 0.5
"""Of a predicted gain, what comes of it at worst as a rule."""


def multiplying_for(sites: Iterable[str]) -> Callable[[Op], bool]:
    """Whether an op does, for one of these modules."""
    paths = {site.partition(":")[2] for site in sites}
    return lambda op: op.cls is OpClass.CONTRACTION and op.module.partition(".")[2] in paths


@dataclass(frozen=True)
class Chart:
    exam: Exam
    subject: Subject

    @cached_property
    def case(self) -> Case:
        exam, (kernels, _) = self.exam, attribute(self.exam)
        busy_s = sum(one.seconds for one in kernels)
        host_s = max(0.0, exam.step_s - busy_s) if exam.serial else exam.host_s
        gaps_s = 0.0 if exam.serial else queued_gaps_s(exam.kernels, exam.gap_before_s)
        device_s = min(exam.step_s, busy_s + gaps_s)
        floors = None if exam.program is None else fused_floor(exam.program, exam.ceilings)
        sides = Sides(host_s, device_s, exam.serial)
        return Case(exam, tuple(kernels), sides, limiter(host_s, device_s, exam.step_s), floors)

    @property
    def is_cuda(self) -> bool:
        return self.subject.device.startswith("cuda")

    @property
    def ops(self) -> tuple[Op, ...]:
        return () if self.exam.program is None else self.exam.program.ops

    def compulsory_s(self, inside: Callable[[Op], bool]) -> float:
        """Of the ops inside, below which nothing honest is; 0 where nobody knows."""
        program = self.exam.program
        if program is None:
            return 0.0
        part = replace(program, ops=tuple(filter(inside, program.ops)))
        return compulsory_floor(part, self.exam.ceilings).seconds or 0.0

    @property
    def trains(self) -> bool:
        return any(op.phase is Phase.BACKWARD for op in self.ops)

    def kernels(self, wanted: Callable[[Op], bool]) -> list[Attributed]:
        """Those that did an op of the program that is wanted."""
        return [
            one
            for one in self.case.kernels
            if any(wanted(self.ops[op]) for op in one.kernel.fused_from or () if op < len(self.ops))
        ]

    def products_of(self, sites: Iterable[str]) -> list[Attributed]:
        """Kernels that multiply for one of these modules."""
        return self.kernels(multiplying_for(sites))

    def forecast(self, *, device_s: float = 0.0, host_s: float = 0.0, most_device_s: float | None = None) -> Forecast:
        """Of a change that takes so much off device and host, and off the device no more than the most.

        Off the host it may take less than nothing, which at worst is all to be paid, and at best half of it.
        """
        least_host_s, most_host_s = sorted((host_s, UNSURE * host_s))
        likely = self._speedup(device_s, host_s)
        most = self._speedup(device_s if most_device_s is None else most_device_s, most_host_s)
        return Forecast(likely, self._speedup(UNSURE * device_s, least_host_s), max(likely, most))

    def _speedup(self, device_s: float, host_s: float) -> float:
        stake = at_stake(self.case.sides, device_less_s=device_s, host_less_s=host_s) or 0.0
        return self.exam.step_s / max(self.exam.step_s - stake, 1e-3 * self.exam.step_s)

    def device_s_of(self, code: str) -> float:
        """What a finding has at stake on the device; 0 where it finds nothing."""
        stake = FINDINGS[code].run(self.case)
        return 0.0 if stake is None else stake.device_seconds or 0.0

    # **** what fusing would save ****

    def fusable_s(self, inside: Callable[[Op], bool]) -> tuple[float, float]:
        """Device seconds to be gained in kernels that multiply nothing and do an op inside, and at the most.

        A compiler leaves products to the library: what would follow one in the same kernel is a kernel of its own,
        which takes as long as any does and reads what the product has written. At most it would take nothing, and what
        is attention, spelled out, no more than one call of it.
        """
        took_s = sum(one.seconds for one in self.kernels(inside) if one.cls is not OpClass.CONTRACTION)
        groups = self.fused_groups(inside)
        generated = [seconds for one in groups if (seconds := self._generated_s(one)) is not None]
        whole = [one for one in groups if all(inside(self.ops[op]) for op in one.group.ops)]
        plain = [one.seconds or 0.0 for one in whole if not self._products(one)]
        attending_s = sum(map(self._above_one_call_s, groups))
        return max(0.0, took_s - sum(generated)), max(0.0, took_s - sum(plain)) + attending_s

    def _above_one_call_s(self, one: GroupFloor) -> float:
        """Of products with something between them, which is attention: what they take above the floor of all of it."""
        if len(self._products(one)) < 2:
            return 0.0
        ops = set(one.group.ops)
        took_s = sum(
            each.seconds
            for each in self.case.kernels
            if each.cls is OpClass.CONTRACTION and not ops.isdisjoint(each.kernel.fused_from or ())
        )
        return max(0.0, took_s - (one.seconds or 0.0))

    def fused_groups(self, inside: Callable[[Op], bool]) -> list[GroupFloor]:
        """Of the fused floor, those that have an op inside."""
        groups = () if self.case.fused is None else self.case.fused.groups
        return [one for one in groups if any(inside(self.ops[op]) for op in one.group.ops)]

    def _generated_s(self, one: GroupFloor) -> float | None:
        """What a generated kernel takes for all of a group but its products; None where nothing is left, or known. What
        stands between two products is attention, spelled out, and part of one call.
        """
        ceilings, products = self.exam.ceilings, self._products(one)
        if len(products) > 1:
            return None
        works = [self.ops[op].work for op in one.group.ops if self.ops[op].cls is not OpClass.CONTRACTION]
        known = [replace(work, matrix={}) for work in works if work is not None]
        found = floor(total(known), beside_products(one.traffic, products) if products else one.traffic, ceilings)
        shortest_s = ceilings.shortest_kernel_class_s.get("elementwise", 0.0)
        return None if found is None or not works else max(shortest_s, found.seconds / REACHED)

    def _products(self, one: GroupFloor) -> list[Op]:
        return [self.ops[op] for op in one.group.ops if self.ops[op].cls is OpClass.CONTRACTION]
