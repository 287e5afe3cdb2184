"""What kernels are called tells collectives from all else, whoever wrote them."""

import pytest

from gobrrr.work.kernel_names import class_of, is_communication
from gobrrr.work.op import OpClass

COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
    "rccl_main_kernel",
    "mscclKernel_Sum_half_Simple_false",
    "void mscclpp::allreduce7<__half>(...)",
    "oneccl_allreduce_kernel",
    "ccl::sycl_allreduce_small",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void sglang::cross_device_reduce_2stage<half, 4>(...)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8>(AllReduceParams)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
    "void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)",
    "void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**)",
    "two_shot_all_reduce_kernel_inplace",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
    "void deep_ep::internode_ll::combine<true, 7168, 8>(void*)",
    "void quickreduce::allreduce_prototype_twoshot<...>",
    "nvshmemi_transfer_rma_p2p",
    "void pplx::AllToAllInterNode::dispatchKernel",
    "hcom_allReduce__042_0",
    "gloo:broadcast",
    "c10d::broadcast_",
)
OTHERS = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "small_reduce_kernel",
    "void at::native::vectorized_gather_kernel<16, long>",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    "void at::native::index_elementwise_kernel<128, 4>",
    "triton_red_fused__to_copy_all_reduced_0",
    "void cub::DeviceReduceKernel",
    "aten::scatter_add_",
    "success_kernel",
)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_all_makers_are_communication(name):
    assert is_communication(name)
    assert class_of(name) is OpClass.COMMUNICATION


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_sounds_alike_is_none(name):
    assert not is_communication(name)
