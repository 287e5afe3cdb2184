"""Which bytes come from memory and which are still in the cache."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.residency import Access, Traffic, accesses, likely_residency, residency
from gobrrr.diagnose.segments import Segments
from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.program import Memory, Program
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work

MiB = 1 << 20


class Tape:
    """A program written by hand: every op reads its inputs and writes its outputs in full unless told."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._storages = 0

    @property
    def program(self) -> Program:
        return Program(tuple(self.ops), Memory(0, 0, 0, {}))

    def tensor(self, *shape: int, dtype: str = "fp32") -> TensorRef:
        self._storages += 1
        stride = tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
        return TensorRef(self._storages, 0, shape, stride, dtype)

    def op(self, name, cls, inputs, outputs, *, phase=Phase.FORWARD, work=None, launches=True):
        self.ops.append(
            Op(
                name=f"aten::{name}",
                cls=cls,
                phase=phase,
                module="",
                source=None,
                device="cpu",
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                counted_by=CountedBy.FORMULA,
                work=moving(inputs, outputs) if work is None else work,
                launches=launches,
            )
        )
        return outputs[0] if outputs else None

    def pointwise(self, *inputs: TensorRef, name="add", phase=Phase.FORWARD, fmas=1) -> TensorRef:
        out = self.tensor(*max((ref.shape for ref in inputs), key=prod), dtype=inputs[0].dtype)
        return self.op(
            name, OpClass.ELEMENTWISE, inputs, [out], phase=phase, work=moving(inputs, [out], fma=fmas * out.numel)
        )

    def product(self, left: TensorRef, right: TensorRef, *, phase=Phase.FORWARD) -> TensorRef:
        out = self.tensor(*left.shape[:-1], right.shape[-1], dtype=left.dtype)
        work = moving([left, right], [out], matrix={left.dtype: 2 * out.numel * left.shape[-1]})
        return self.op("mm", OpClass.CONTRACTION, [left, right], [out], phase=phase, work=work)


def moving(inputs, outputs, *, fma=0, matrix=None) -> Work:
    return Work(
        matrix=matrix or {},
        vector={"fp32": {"fma": fma}} if fma else {},
        bytes_read=distinct_bytes(inputs),
        bytes_written=distinct_bytes(outputs),
    )


def read(storage: int | None, start: float, stop: float, nbytes: float | None = None) -> Access:
    return Access(storage, start, stop, stop - start if nbytes is None else nbytes, writes=False)


def write(storage: int | None, start: float, stop: float) -> Access:
    return Access(storage, start, stop, stop - start, writes=True)


def last(*sequence: list[Access], cache: float = 200) -> Traffic:
    """Of the last of a sequence that follows enough other traffic for nothing to be left of the step before."""
    flood = [read(99, 0, 10_000)]
    return residency([flood, *sequence], cache)[-1]


def test_what_was_just_written_is_read_from_the_cache():
    assert last([write(1, 0, 50)], [read(1, 0, 50)]) == Traffic(cache_read=50)


def test_what_was_just_read_is_read_from_the_cache():
    assert last([read(1, 0, 50)], [read(1, 0, 50)]).cache_read == 50


def test_half_a_cache_of_traffic_in_between_is_the_limit():
    between = [read(2, 0, 50)]
    assert last([write(1, 0, 50)], between, [read(1, 0, 50)], cache=200).cache_read == 50
    assert last([write(1, 0, 50)], between, [read(1, 0, 50)], cache=199).dram_read == 50


def test_a_stream_longer_than_half_a_cache_evicts_its_own_beginning():
    assert last([read(1, 0, 60), write(2, 0, 60)], [read(2, 0, 60)]).dram_read == 60


def test_writing_clean_bytes_costs_memory_a_write_and_writing_dirty_ones_none():
    assert last([read(1, 0, 50)], [write(1, 0, 50)]).dram_written == 50
    assert last([write(1, 0, 50)], [write(1, 0, 50)]).cache_written == 50


def test_an_op_in_place_on_a_large_tensor_reads_and_writes_memory():
    assert last([read(1, 0, 500), write(1, 0, 500)]) == Traffic(dram_read=500, dram_written=500)


def test_part_of_a_stretch_may_be_resident():
    assert last([write(1, 0, 25)], [read(1, 0, 100)]) == Traffic(dram_read=75, cache_read=25)


def test_fewer_bytes_than_the_stretch_holds_are_resident_by_its_share():
    """A gather of 8 bytes somewhere in 100 of which a quarter is there."""
    assert last([write(1, 0, 25)], [read(1, 0, 100, nbytes=8)]) == Traffic(dram_read=6, cache_read=2)


def test_a_tensor_of_unknown_storage_is_never_resident():
    assert last([write(None, 0, 50)], [read(None, 0, 50)]).dram_read == 50


def test_a_step_that_fits_runs_in_the_cache_and_without_a_cache_nothing_does():
    step = [[read(1, 0, 20), write(2, 0, 20)], [read(2, 0, 20), write(1, 0, 20)]]
    assert all(traffic.dram == 0 for traffic in residency(step, 200))
    assert all(traffic.cache == 0 for traffic in residency(step, None))


def test_the_next_step_finds_what_the_last_one_left():
    step = [[read(1, 0, 40)], [read(2, 0, 500)], [read(3, 0, 40)]]
    again = [step[2], step[0], step[1]]
    assert residency(again, 200)[0].dram_read == 40, "500 bytes lie between"
    assert residency([step[0], step[1], step[0]], 200)[0].cache_read == 40


def test_an_op_that_touches_part_of_its_operands_shares_the_bytes_out():
    tape = Tape()
    table, ids, rows = tape.tensor(1000, 8), tape.tensor(10, dtype="int64"), tape.tensor(10, 8)
    tape.op("embedding", OpClass.INDEXING, [table, ids], [rows], work=Work(bytes_read=80 + 320, bytes_written=320))
    of_table, of_ids, of_rows = accesses(tape.ops[0])
    assert of_table.nbytes + of_ids.nbytes == pytest.approx(400)
    assert of_table.nbytes / of_ids.nbytes == pytest.approx(32000 / 80)
    assert of_rows.nbytes == 320


def test_a_copy_does_not_read_its_target():
    tape = Tape()
    target, source = tape.tensor(100), tape.tensor(100)
    tape.op("copy_", OpClass.MOVEMENT, [target, source], [target], work=Work(bytes_read=400, bytes_written=400))
    assert [access.storage for access in accesses(tape.ops[0])] == [source.storage, target.storage]


def test_a_view_touches_nothing_and_an_operand_given_twice_is_touched_once():
    tape = Tape()
    x = tape.tensor(100)
    tape.op("view", OpClass.OTHER, [x], [x], work=Work(), launches=False)
    tape.pointwise(x, x)
    assert accesses(tape.ops[0]) == ()
    assert [access.nbytes for access in accesses(tape.ops[1])] == [400, 400]


STRETCHES = st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(STRETCHES, max_size=12), STRETCHES)
def test_segments_are_an_array_of_notes(written, asked):
    segments, array = Segments(), [None] * 64
    for note, (start, stop) in enumerate(written):
        segments[start, stop] = note
        array[start:stop] = [note] * (stop - start)
    found = [note for length, note in segments[asked] for _ in range(int(length))]
    assert found == array[asked[0] : asked[1]]


ACCESSES = st.builds(
    lambda storage, stretch, share, writes: Access(storage, *stretch, share * (stretch[1] - stretch[0]), writes),
    st.sampled_from([None, 1, 2, 3]),
    STRETCHES,
    st.sampled_from([0.25, 1.0]),
    st.booleans(),
)
SEQUENCES = st.lists(st.lists(ACCESSES, max_size=3), max_size=12)


@given(SEQUENCES, st.integers(0, 200))
def test_every_byte_comes_from_one_level(sequence, cache):
    for touched, traffic in zip(sequence, residency(sequence, cache), strict=True):
        reads = sum(access.nbytes for access in touched if not access.writes)
        writes = sum(access.nbytes for access in touched if access.writes)
        assert traffic.dram_read + traffic.cache_read == pytest.approx(reads)
        assert traffic.dram_written + traffic.cache_written == pytest.approx(writes)
        assert min(traffic.dram_read, traffic.dram_written) >= -1e-9


@given(SEQUENCES, st.integers(0, 200), st.integers(0, 200))
def test_a_larger_cache_serves_no_less(sequence, one, other):
    small, large = (residency(sequence, size) for size in sorted((one, other)))
    assert all(less.cache <= more.cache + 1e-9 for less, more in zip(small, large, strict=True))


@given(st.integers(1, 1000))
def test_a_likely_cache_holds_all_of_what_is_small_and_a_share_of_what_is_large(size):
    """Written once and read at once: as much of it is found as the window is of what was written."""
    nbytes = size * MiB
    sequence = [[Access(1, 0, nbytes, nbytes, writes=True)], [Access(1, 0, nbytes, nbytes, writes=False)]]
    found = likely_residency(sequence, 100 * MiB)[1]
    assert found.cache_read == pytest.approx(min(1.0, 65 / size) * nbytes)
    assert found.bytes == pytest.approx(nbytes)
