"""Work of recorded ops against closed forms: outputs were not recorded and have to be found."""

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.work.kernel_names import class_of, is_communication, is_tf32, type_of
from gobrrr.work.op import CountedBy, OpClass, TensorRef
from gobrrr.work.recorded import Recorded, recorded
from gobrrr.work.recorded_ops import CountedOp, Surroundings, counted_op

sizes = st.integers(1, 64)


def op(name: str, dims: list, types: list[str] | None, values: list[str] | None = None, strides=None) -> Recorded:
    texts = (json.dumps(one).encode() if one is not None else b"" for one in (dims, strides, types, values))
    found = recorded(name, *texts, assumed_type="fp32")
    assert found is not None
    return found


def count(one: Recorded, **near) -> CountedOp:
    found = counted_op(one, Surroundings(**near))
    assert found is not None
    return found


def dense(*shape: int, dtype: str = "fp32") -> TensorRef:
    return TensorRef(None, 0, shape, tuple(prod(shape[place + 1 :]) for place in range(len(shape))), dtype)


@given(sizes, sizes, sizes)
def test_a_product_costs_two_flops_for_each_of_its_terms(m, k, n):
    work = count(op("aten::mm", [[m, k], [k, n]], ["c10::BFloat16"] * 2)).work
    assert work.matrix == {"bf16": 2 * m * k * n}
    assert (work.bytes_read, work.bytes_written) == (2 * (m * k + k * n), 2 * m * n)


@given(sizes, sizes, sizes)
def test_a_product_into_a_given_tensor_does_not_read_it(m, k, n):
    work = count(op("aten::mm", [[m, k], [k, n], [m, n]], ["float"] * 3)).work
    assert (work.bytes_read, work.bytes_written) == (4 * (m * k + k * n), 4 * m * n)


@given(sizes, sizes)
def test_types_promote_as_torch_promotes_them(m, n):
    work = count(op("aten::mul", [[m, n], [m, n]], ["float", "c10::BFloat16"])).work
    assert work.bytes_written == 4 * m * n
    scalar = count(op("aten::mul", [[m, n], []], ["c10::BFloat16", "double"])).work
    assert scalar.bytes_written == 2 * m * n


def test_an_expanded_operand_is_read_once():
    work = count(
        op("aten::add", [[8, 16], [8, 16], []], ["float", "float", "Scalar"], ["", "", "1"], [[16, 1], [0, 1], []])
    )
    assert work.work.bytes_read == 4 * (8 * 16 + 16)


def test_a_convolution_without_its_stride_gives_what_the_next_op_takes():
    image, weight, result = [2, 3, 32, 32], [8, 3, 3, 3], (2, 8, 15, 15)
    conv = op("aten::cudnn_convolution", [image, weight, *[[]] * 7], ["float"] * 2 + ["GenericList"] * 3 + ["Int"] * 4)
    counter = TensorRef(None, 0, (), (), "int64")
    work = count(conv, following=(counter, dense(*result))).work
    assert work.matrix == {"fp32": 2 * prod(weight) * 2 * 15 * 15}
    assert counted_op(conv, Surroundings(following=(counter,))) is None


def test_halves_of_a_backward_that_torch_has_no_more_cost_a_forward_each():
    whole = op("aten::cudnn_convolution_backward", [[2, 3, 8, 8], [2, 4, 8, 8], [4, 3, 3, 3]], ["float"] * 3)
    half = op(
        "aten::cudnn_convolution_backward_weight", [[], [2, 4, 8, 8], [2, 3, 8, 8]], ["GenericList", "float", "float"]
    )
    forward = 2 * 4 * 3 * 9 * 2 * 64
    assert count(half, around=whole).work.matrix == {"fp32": forward}
    assert count(whole).work.matrix == {"fp32": 2 * forward}


def test_a_generated_kernel_moves_each_operand_once():
    dims = [[8, 128], [128], [8, 128], []]
    found = count(op("triton_poi_fused_add_mul_0", dims, ["c10::BFloat16"] * 3 + ["Scalar"], ["", "", "", "1024"]))
    assert found.counted_by is CountedBy.DEFAULT
    assert found.work.bytes == 2 * (8 * 128 + 128 + 8 * 128)


@given(st.lists(st.integers(2, 64), min_size=3, max_size=3, unique=True), st.booleans())
def test_a_generated_product_has_the_flops_of_its_operands(sizes, has_bias):
    rows, inner, columns = sizes
    dims = [*([[columns]] if has_bias else []), [rows, inner], [inner, columns], [rows, columns]]
    found = count(op("triton_tem_fused_addmm_mm_3", dims, ["c10::BFloat16"] * len(dims)))
    assert (found.cls, found.counted_by) == (OpClass.CONTRACTION, CountedBy.FORMULA)
    assert found.work.matrix == {"bf16": 2 * rows * inner * columns}
    assert found.work.bytes == 2 * sum(prod(one) for one in dims)


def test_a_generated_contraction_of_another_form_is_unknown():
    heads = [[2, 8, 128, 64]] * 4
    assert counted_op(op("triton_tem_fused_flex_attention_0", heads, ["c10::BFloat16"] * 4), Surroundings()) is None


def test_what_nobody_knows_is_unknown():
    assert counted_op(op("mylib::secret", [[8, 8]], ["float"]), Surroundings()) is None
    assert counted_op(op("aten::add", [[8, 8], [8, 8], []], ["mystery", "mystery", "Scalar"]), Surroundings()) is None


def test_tf32_is_what_the_kernel_says():
    product = op("aten::mm", [[8, 8], [8, 8]], ["float", "float"])
    assert count(product, tf32=True).work.matrix == {"tf32": 1024}


def test_flash_attention_under_a_causal_mask_needs_half_of_its_scores():
    shape = [2, 4, 128, 64]
    types = ["c10::BFloat16"] * 3 + ["Scalar"] * 4
    one = op(
        "aten::_scaled_dot_product_flash_attention",
        [shape] * 3 + [[]] * 4,
        types,
        ["", "", "", "0.", "True", "False", "0.125"],
    )
    work = count(one).work
    assert work.flops_dense == 4 * 2 * 4 * 128 * 128 * 64
    assert work.matrix["bf16"] == pytest.approx(work.flops_dense / 2, rel=0.01)


@pytest.mark.parametrize(
    "kernel",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(...)",
        "void multimem_all_reduce_kernel<c10::BFloat16>(...)",
        "void deep_ep::internode_ll::dispatch<false, 8>(...)",
        "rccl_AllGather_kernel",
        "one_shot_all_reduce_kernel",
        "gloo:all_reduce",
    ],
)
def test_communication_is_known_by_whoever_wrote_it(kernel):
    assert is_communication(kernel)
    assert class_of(kernel) is OpClass.COMMUNICATION


@pytest.mark.parametrize(
    ("kernel", "cls"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", OpClass.ELEMENTWISE),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", OpClass.CONTRACTION),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64", OpClass.CONTRACTION),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", OpClass.CONTRACTION),
        ("triton_red_fused_mean_0", OpClass.NORMALIZATION),
        ("triton_poi_fused_convolution_relu_1", OpClass.ELEMENTWISE),
        ("triton_per_fused__softmax_bmm_2", OpClass.NORMALIZATION),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", OpClass.NORMALIZATION),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", OpClass.NORMALIZATION),
        ("something_else", OpClass.OTHER),
    ],
)
def test_kernels_have_a_class_by_name(kernel, cls):
    assert class_of(kernel) is cls


def test_names_of_kernels_tell_their_types():
    assert type_of("void at::native::vectorized_elementwise_kernel<4, AddFunctor<c10::BFloat16>>") == "bf16"
    assert type_of("volta_sgemm_128x64_nn") == "fp32"
    assert type_of("secret") is None
    assert is_tf32("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>")
    assert not is_tf32("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x256_nt_align1>")
