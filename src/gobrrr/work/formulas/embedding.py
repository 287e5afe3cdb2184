"""Embeddings read the rows that are touched, not the table.

Which rows are touched lies in the indices, on the device. n distinct indices touch at most n rows, and at most all;
an index that is expanded over the batch, as positions are, is one.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


def touched_bytes(table: TensorRef, indices: TensorRef) -> float:
    rows, *row = table.shape
    row_elements = table.unique / rows if rows and row else 1
    return min(indices.unique, rows) * row_elements * table.item_bytes


@formula("embedding", cls=OpClass.INDEXING)
def embedding(call: Call) -> Work:
    table, indices = call["weight"], call["indices"]
    return counted(call, read=indices.unique_bytes + touched_bytes(table, indices))


@formula("embedding_dense_backward", "embedding_backward", cls=OpClass.INDEXING)
def embedding_backward(call: Call) -> Work:
    """Rows of the output's gradient are added up by index; the table's gradient is written in full, zeros too."""
    added = call["grad_output"].numel
    return counted(call, vector_flops=added, vector={"fma": added})


@formula("_embedding_bag", "_embedding_bag_forward_only", cls=OpClass.INDEXING)
def embedding_bag(call: Call) -> Work:
    """Touched rows read, summed by bag, and only the sums written."""
    table, indices = call["weight"], call["indices"]
    others = distinct_bytes(call.tensors("indices", "offsets", "per_sample_weights"))
    added = indices.numel * table.shape[-1]
    return counted(call, vector_flops=added, vector={"fma": added}, read=others + touched_bytes(table, indices))


@formula("_embedding_bag_dense_backward", cls=OpClass.INDEXING)
def embedding_bag_backward(call: Call) -> Work:
    added = call["indices"].numel * call["grad"].shape[-1]
    return counted(call, vector_flops=added, vector={"fma": added})
