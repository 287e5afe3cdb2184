"""Processes that decode slabs: in order, whatever their size, and never waited for in vain."""

import os

import pytest

from gobrrr.errors import Missing
from gobrrr.timing.traces.workers import AHEAD, PLACE_BYTES, decoded_together

PROCESSES = 2


def chunks(slabs, decode):
    return list(decoded_together(slabs, decode, PROCESSES))


def where(slab: bytes) -> tuple[bytes, int]:
    return slab[:8], os.getpid()


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [number.to_bytes(8, "big").ljust(size) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, AHEAD * PROCESSES, 5 * AHEAD * PROCESSES + 1])
def test_chunks_come_in_the_order_of_their_slabs_from_all_processes(count):
    found = chunks(numbered(count), where)
    assert [number for number, _ in found] == numbered(count)
    assert len({process for _, process in found} - {os.getpid()}) == min(count, PROCESSES)


def test_a_slab_that_fits_nowhere_is_decoded_here_in_its_turn():
    slabs = numbered(9)
    slabs[4] = slabs[4].ljust(PLACE_BYTES + 1)
    found = chunks(slabs, where)
    assert [number for number, _ in found] == numbered(9)
    assert [process == os.getpid() for _, process in found] == [place == 4 for place in range(9)]


def test_a_chunk_may_be_larger_than_its_slab():
    assert [len(one) for one in chunks(numbered(8), lambda slab: slab * PLACE_BYTES)] == [8 * PLACE_BYTES] * 8


def refused(slab: bytes) -> bytes:
    if slab == numbered(8)[5]:
        raise ValueError("damaged")
    return slab


def test_what_a_process_raises_is_raised_here_after_what_came_before():
    found = decoded_together(numbered(8), refused, PROCESSES)
    assert [next(found) for _ in range(5)] == numbered(5)
    with pytest.raises(ValueError, match="damaged"):
        next(found)


def test_a_process_that_is_ended_is_missed_and_not_waited_for():
    with pytest.raises(Missing, match="memory"):
        chunks(numbered(8), lambda _slab: os._exit(9))


def test_nobody_is_left_behind_when_the_rest_is_not_wanted():
    found = decoded_together(numbered(100), where, PROCESSES)
    processes = {next(found)[1] for _ in range(PROCESSES)}
    found.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_as_many_slabs_as_have_places_are_taken_before_the_first_chunk_is_waited_for():
    taken: list[bytes] = []
    slabs = numbered(5 * AHEAD * PROCESSES)
    found = decoded_together((taken.append(slab) or slab for slab in slabs), where, PROCESSES)
    next(found)
    assert taken == slabs[: AHEAD * PROCESSES + 1]
