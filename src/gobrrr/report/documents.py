"""All documents that commands print as JSON, and their schemas as the files of docs/schemas.

`python -m gobrrr.report.documents docs/schemas` writes them.
"""

import json
import sys
from pathlib import Path

from gobrrr.diagnose.compare import Comparison
from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.exam import Exam
from gobrrr.json_schema import json_schema
from gobrrr.lab.result import Lab
from gobrrr.machine.ceilings import Ceilings
from gobrrr.predict.prediction import Predictions
from gobrrr.report.explain import Pages
from gobrrr.schema import Document
from gobrrr.treat.outcome import Prescription, Treated
from gobrrr.work.tally import Tally

DOCUMENTS: tuple[type[Document], ...] = (
    Ceilings,
    Tally,
    Exam,
    Diagnosis,
    Comparison,
    Predictions,
    Treated,
    Prescription,
    Lab,
    Pages,
)


def schemas() -> dict[str, str]:
    """By file name, as they are published."""
    return {f"{kind.SCHEMA}.schema.json": json.dumps(json_schema(kind), indent=1) + "\n" for kind in DOCUMENTS}


if __name__ == "__main__":
    for name, text in schemas().items():
        (Path(sys.argv[1]) / name).write_text(text)
