"""The floors of a step as treated, and what is made of a step that is faster than the lower one.

Nothing honest is. But where no vendor says what a machine can do, the floor stands on what was measured, perhaps while
somebody else was at work on it: that is measured once more before a trial is called a mistake.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gobrrr.diagnose.compulsory import compulsory_floor
from gobrrr.diagnose.fusion import fused_floor
from gobrrr.exam import Exam
from gobrrr.machine import Ceilings, datasheets
from gobrrr.predict.cast import cast
from gobrrr.treat.treatment import Numerics, Plan
from gobrrr.work.program import Program

CAST = ("tf32", "bf16", "fp16", "fp8")


@dataclass
class Floors:
    exam: Exam
    """Of the step as it came."""
    measured_again: Callable[[], Ceilings]
    again: Ceilings | None = None
    """Of the same machine, once somebody had to ask."""

    def compulsory_s(self, plan: Plan) -> float | None:
        program, sheet = self._program(plan), datasheets.find(self.exam.ceilings.device)
        if program is None:
            return None
        measured = [one for one in (self.exam.ceilings, self.again) if one is not None]
        floors_s = [compulsory_floor(program, ceilings, sheet).seconds for ceilings in measured]
        return min((one for one in floors_s if one is not None), default=None)

    def fused_s(self, plan: Plan) -> float | None:
        program = self._program(plan)
        return None if program is None else fused_floor(program, self.exam.ceilings).seconds

    def violated_s(self, plan: Plan, step_s: float) -> float | None:
        """The compulsory floor, if a step that takes so long is below it."""
        floor_s = self.compulsory_s(plan)
        if floor_s is None or step_s >= floor_s:
            return None
        if self.again is None and datasheets.find(self.exam.ceilings.device) is None:
            self.again = self.measured_again()
            return self.violated_s(plan, step_s)
        return floor_s

    def _program(self, plan: Plan) -> Program | None:
        """As treated: what was allowed makes products cheaper, and nothing else does. None where nobody can say by
        what.
        """
        program = self.exam.program
        if program is None or any(dose.treatment.numerics is Numerics.QUANTIZED for dose in plan):
            return None
        ops = program.ops
        for dose in plan:
            if dose.treatment.allow in CAST:
                ops = cast(ops, dose.treatment.allow)
        return replace(program, ops=ops)
