"""Copies, casts, concatenations and fills: bytes and no arithmetic."""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


@formula(
    *"clone _to_copy contiguous cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d flip roll repeat rot90 lift_fresh_copy "
    "_pack_padded_sequence pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im slice_backward "
    "select_backward diagonal_backward unfold_backward _local_scalar_dense _reshape_copy view_copy expand_copy "
    "permute_copy transpose_copy t_copy slice_copy select_copy squeeze_copy unsqueeze_copy split_copy "
    "split_with_sizes_copy unbind_copy as_strided_copy alias_copy detach_copy view_as_real_copy "
    "view_as_complex_copy unfold_copy diagonal_copy masked_scatter_backward value_selecting_reduction_backward "
    "reflection_pad2d_backward replication_pad2d_backward reflection_pad1d_backward replication_pad1d_backward "
    "_pack_padded_sequence_backward _chunk_cat _cat block_diag tensor_split_copy _weight_norm_interface "
    "resolve_conj resolve_neg _nested_tensor_from_mask".split(),
    cls=OpClass.MOVEMENT,
)
def copy(call: Call) -> Work:
    """Each distinct source element read, each target element written; an expanded source is read once."""
    return counted(call)


@formula("copy", "_foreach_copy", cls=OpClass.MOVEMENT)
def copy_into(call: Call) -> Work:
    """The old content of the target is not read."""
    return counted(call, read=distinct_bytes(call.tensors("src")))


@formula("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", cls=OpClass.MOVEMENT)
def copy_with_a_part_replaced(call: Call) -> Work:
    """Reads what of the old remains and the part that replaces the rest: as much as is written."""
    return counted(call, read=call.out.nbytes)


@formula(
    *"fill zero zeros ones full arange linspace logspace eye scalar_tensor zeros_like ones_like full_like new_zeros "
    "new_ones new_full tril_indices triu_indices _foreach_zero vander hann_window range".split(),
    cls=OpClass.MOVEMENT,
)
def fill(call: Call) -> Work:
    """Written and not read, but for a fill value that is a tensor."""
    value = call.args.get("value")
    return counted(call, read=distinct_bytes(call.tensors("value")) if value is not None else 0)
