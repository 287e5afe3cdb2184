"""Collectives, by what they move through this device's own memory.

What travels between devices depends on the algorithm and is the network's affair; here every send buffer is
read once and every receive buffer written once. A reduction adds once per element received.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work

_FUNCTIONAL = "_c10d_functional"

_REDUCING = (
    *(
        f"c10d::{name}"
        for name in "allreduce_ allreduce_coalesced_ reduce_ reduce_scatter_ _reduce_scatter_base_".split()
    ),
    "c10d::reduce_scatter_tensor_coalesced_",
    *(f"{_FUNCTIONAL}::{name}" for name in "all_reduce all_reduce_coalesced reduce_scatter_tensor".split()),
    f"{_FUNCTIONAL}::reduce_scatter_tensor_coalesced",
    f"{_FUNCTIONAL}::reduce_scatter_tensor_out",
)

_MOVING = (
    *(
        f"c10d::{name}"
        for name in "broadcast_ allgather_ _allgather_base_ allgather_coalesced_ gather_ scatter_".split()
    ),
    *(f"c10d::{name}" for name in "allgather_into_tensor_coalesced_ alltoall_ alltoall_base_ send recv_".split()),
    "c10d::recv_any_source_",
    *(f"{_FUNCTIONAL}::{name}" for name in "all_gather_into_tensor all_to_all_single broadcast".split()),
    f"{_FUNCTIONAL}::all_gather_into_tensor_out",
    f"{_FUNCTIONAL}::all_gather_into_tensor_coalesced",
)


_RECEIVE_BUFFERS = frozenset("output_tensors output_tensor output_lists outputs output".split())
"""What the c10d ops call them. Their schemas do not say which arguments are written, and some return nothing."""


def _received(call: Call) -> tuple[TensorRef, ...]:
    buffers = [name for name in call.args if name in _RECEIVE_BUFFERS]
    if buffers:
        return call.tensors(*buffers)
    if call.name == "c10d::send":
        return ()
    return call.outputs or call.tensors()


def _sent(call: Call) -> tuple[TensorRef, ...]:
    if call.name.startswith("c10d::recv"):
        return ()
    return call.tensors(*(name for name in call.args if name not in _RECEIVE_BUFFERS | call.write_only))


def _exchanged(call: Call, added: int) -> Work:
    return counted(
        call,
        vector_flops=added,
        vector={"fma": added},
        read=distinct_bytes(_sent(call)),
        written=distinct_bytes(_received(call)),
    )


@formula(*_REDUCING, cls=OpClass.COMMUNICATION)
def reducing(call: Call) -> Work:
    return _exchanged(call, added=sum(tensor.numel for tensor in _received(call)))


@formula(*_MOVING, cls=OpClass.COMMUNICATION)
def moving(call: Call) -> Work:
    return _exchanged(call, added=0)
