"""B502: a step that sleeps in every other half of a second; its twin never does."""

import time
from collections.abc import Callable

from gobrrr.patients.body import products, sized


def sick() -> Callable[[], object]:
    multiply = products(sized(1, 8))

    def step() -> None:
        multiply()
        if int(2 * time.monotonic()) % 2:
            time.sleep(0.02)

    return step


def healthy() -> Callable[[], object]:
    return products(sized(1, 8))
