"""Findings: named problems, one small file each. Importing this package registers them all.

Adding one is a new file here with a function under `@finding`, and its tests with a healthy twin.
"""

from importlib import import_module
from pkgutil import iter_modules

from gobrrr.diagnose.findings.finding import FINDINGS as FINDINGS
from gobrrr.diagnose.findings.finding import Case as Case
from gobrrr.diagnose.findings.finding import Finding as Finding
from gobrrr.diagnose.findings.finding import Rule as Rule
from gobrrr.diagnose.findings.finding import Stake as Stake
from gobrrr.diagnose.findings.finding import find_all as find_all
from gobrrr.diagnose.findings.finding import nothing_to_gain as nothing_to_gain
from gobrrr.diagnose.findings.finding import selected as selected

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
