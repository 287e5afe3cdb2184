"""An Exam with its diagnosis: what a report of a step is made from."""

from dataclasses import dataclass

from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.exam import Exam


@dataclass(frozen=True, slots=True)
class Examined:
    exam: Exam
    diagnosis: Diagnosis
