"""Collectives, by what they move through this device's own memory.

What travels between devices depends on the algorithm and is the network's affair; here every send buffer is
read once and every receive buffer written once. A reduction adds once per element received.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
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


@formula(*_REDUCING, cls=OpClass.COMMUNICATION)
def reducing(call: Call) -> Work:
    added = sum(output.numel for output in call.outputs)
    return counted(call, vector_flops=added, vector={"fma": added})


@formula(*_MOVING, cls=OpClass.COMMUNICATION)
def moving(call: Call) -> Work:
    return counted(call)
