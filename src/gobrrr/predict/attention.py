"""Fused attention: query tiles that walk over keys; for few queries, keys shared out over the multiprocessors.

Fitted to public tables of paged flash attention on A100 and H100 (benchmarks/predict.py).
"""

from dataclasses import dataclass
from math import ceil

from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.estimate import Estimate, overlapped


@dataclass(frozen=True, slots=True)
class Attention:
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool = True
    window: int | None = None
    """Keys that a query sees back from itself; None for all."""
    mode: str = "bf16"
    item_bytes: float = 2
    current: bool = False
    """Kernels written for this generation of matrix units, as cuDNN's; torch's own flash is from before Hopper."""

    @property
    def group(self) -> int:
        return max(1, self.heads // self.kv_heads)

    @property
    def kv_bytes(self) -> float:
        seen = min(self.keys, self.window or self.keys)
        return 2 * self.batch * self.kv_heads * seen * self.head_dim * self.item_bytes


_TILE_QUERIES = 128
_TILE_KEYS = 64
_PACKED_TILES = 2
"""Queries of a group's heads share tiles while they fill no more than these."""
_SCORE_CYCLES = 0.178
"""Vector work per score (scale, maximum, exp, convert) that matrix units wait for."""
_SCORE_CYCLES_ASYNCHRONOUS = 0.066
"""Where they need not wait: exp alone takes 1/16 cycle."""
_OUTDATED_RATE = 0.5
"""Of asynchronous matrix units, when kernels drive them as their predecessors: flash 2 on an H100."""
_TILE_CYCLES = 450.0
_TILE_CYCLES_PER_ELEMENT = 0.017
_LONGEST = 0.52
"""Of the longest tile's time that nothing overlaps."""
_PREFILL_SHARPNESS = 1.22
_PREFILL_STREAMED = 0.4
_START_S = 8.2e-6
_START_CYCLES = 1700.0
PAGED_S = 2.2e-6
"""What a paged cache adds: looking up which block lies where."""

_DECODE_ROWS = 31
"""That fewer queries take as long as."""
_DECODE_TILE_KEYS = 128
_DECODE_PACKED = 64
_DECODE_TILE_CYCLES = 3000.0
_DECODE_START_CYCLES = 14500.0
_COMBINE_CYCLES = 4800.0
_DECODE_STREAMED = 0.915
_DECODE_SHARPNESS = 1.45
_RESIDENT = 0.73
"""Thread blocks per multiprocessor that the splitting aims at."""
_MOST_SPLITS = 64
_BYTES_PER_CYCLE = 43.0
"""That one multiprocessor takes in."""

BACKWARD = 2.5
"""Forwards: five products in place of two."""


def attention(shape: Attention, accelerator: Accelerator) -> Estimate:
    """The forward pass, in tiles of queries; few queries against more keys by whichever is quicker, as libraries do."""
    tiled = prefill(shape, accelerator)
    if shape.queries * shape.group > _DECODE_PACKED or shape.keys <= shape.queries:
        return tiled
    return min(tiled, decode(shape, accelerator), key=lambda one: one.seconds)


def prefill(shape: Attention, accelerator: Accelerator) -> Estimate:
    is_packed = shape.queries * shape.group <= _PACKED_TILES * _TILE_QUERIES
    heads = shape.kv_heads if is_packed else shape.heads
    keys = _keys_of_tiles(shape, is_packed=is_packed)
    key_s = _TILE_QUERIES * _score_seconds(shape, accelerator)
    tile_s = (_TILE_CYCLES + _TILE_CYCLES_PER_ELEMENT * _TILE_QUERIES * shape.head_dim) / accelerator.clock_hz
    tiles = shape.batch * heads * len(keys)
    shared_s = (shape.batch * heads * sum(keys) * key_s + tiles * tile_s) / accelerator.multiprocessors
    longest_s = _LONGEST * max(keys) * key_s + tile_s
    query_bytes = 2 * shape.batch * shape.queries * shape.heads * shape.head_dim * shape.item_bytes
    kv_bytes = 2 * shape.batch * shape.keys * shape.kv_heads * shape.head_dim * shape.item_bytes
    memory_s = (query_bytes + kv_bytes) / (accelerator.dram_bytes_per_s * _PREFILL_STREAMED)
    body = overlapped(overlapped(shared_s, longest_s, _PREFILL_SHARPNESS), memory_s, _PREFILL_SHARPNESS)
    start_s = _START_S + _START_CYCLES / accelerator.clock_hz
    return Estimate(start_s + body, shared_s, memory_s, start_s)


def _keys_of_tiles(shape: Attention, *, is_packed: bool) -> list[int]:
    """That each tile of queries walks over, in whole blocks. Queries stand at the end of the keys."""
    if is_packed:
        blocks = ceil(min(shape.keys, (shape.window or shape.keys) + shape.queries) / _TILE_KEYS)
        return [blocks * _TILE_KEYS] * ceil(shape.queries * shape.group / _TILE_QUERIES)
    before = shape.keys - shape.queries
    found = []
    for start in range(0, shape.queries, _TILE_QUERIES):
        last = min(shape.keys, before + start + _TILE_QUERIES) if shape.causal else shape.keys
        first = max(0, before + start - shape.window) if shape.window else 0
        found.append((ceil(last / _TILE_KEYS) - first // _TILE_KEYS) * _TILE_KEYS)
    return found


def _score_seconds(shape: Attention, accelerator: Accelerator) -> float:
    """One query against one key on one multiprocessor: 4·D FLOPs, then the softmax."""
    rate = accelerator.product_flops_per_s(shape.mode)
    overlaps = accelerator.asynchronous and shape.current
    rate *= _OUTDATED_RATE if accelerator.asynchronous and not overlaps else 1.0
    cycles = _SCORE_CYCLES_ASYNCHRONOUS if overlaps else _SCORE_CYCLES
    padded = ceil(shape.head_dim / 64) * 64
    return 4 * padded * accelerator.multiprocessors / rate + cycles / accelerator.clock_hz


def decode(shape: Attention, accelerator: Accelerator) -> Estimate:
    """One or few queries: keys and values stream once for each group of heads."""
    seen = min(shape.keys, shape.window or shape.keys)
    blocks = shape.batch * shape.kv_heads * ceil(shape.queries * shape.group / _DECODE_PACKED)
    key_blocks = ceil(seen / _DECODE_TILE_KEYS)
    room = accelerator.multiprocessors * _RESIDENT
    splits = max(1, min(int(room // blocks), key_blocks, _MOST_SPLITS))
    waves = max(1.0, blocks * splits / room)
    keys = ceil(key_blocks / splits) * _DECODE_TILE_KEYS
    score_s = _score_seconds(shape, accelerator)
    load_s = 2 * shape.head_dim * shape.item_bytes / (_BYTES_PER_CYCLE * accelerator.clock_hz)
    rows = max(_DECODE_ROWS, min(_DECODE_PACKED, shape.queries * shape.group))
    compute_s = waves * (keys * max(rows * score_s, load_s) + _DECODE_TILE_CYCLES / accelerator.clock_hz)
    query_bytes = 2 * shape.batch * shape.queries * shape.heads * shape.head_dim * shape.item_bytes
    memory_s = (shape.kv_bytes + query_bytes) / (accelerator.dram_bytes_per_s * _DECODE_STREAMED)
    combine_s = _COMBINE_CYCLES / accelerator.clock_hz if splits > 1 else 0.0
    start_s = _DECODE_START_CYCLES / accelerator.clock_hz
    body = overlapped(compute_s, memory_s, _DECODE_SHARPNESS)
    return Estimate(start_s + body + combine_s, compute_s, memory_s, start_s)
