"""What reports are made from where more than one document goes in: an Exam with its diagnosis, and two of those."""

from dataclasses import dataclass

from gobrrr.diagnose.compare import Comparison
from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.exam import Exam


@dataclass(frozen=True, slots=True)
class Examined:
    exam: Exam
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Compared:
    before: Examined
    after: Examined
    comparison: Comparison
