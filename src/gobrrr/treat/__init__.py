"""Treatment: change a step, prove that it computes the same and is faster, keep what helped.

`gobrrr.treat` is this package and the function at once: called, it treats.
"""

import sys
from types import ModuleType
from typing import Any


class _Treat(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from gobrrr.treat.api import treat

        return treat(*args, **options)


sys.modules[__name__].__class__ = _Treat
