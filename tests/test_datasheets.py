from collections import Counter

import pytest

from gobrrr.machine import datasheets
from gobrrr.machine.datasheets import Datasheet

SHEETS = datasheets.all_sheets()
BY_ID = {sheet.id: sheet for sheet in SHEETS}
NVIDIA_SINCE_AMPERE = [
    sheet
    for sheet in SHEETS
    if sheet.vendor == "NVIDIA" and sheet.architecture in ("Ampere", "Ada", "Hopper", "Blackwell")
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("nvidia  h200 ", "h200-sxm"),
        ("h200-sxm", "h200-sxm"),
    ],
)
def test_a_device_is_found_by_the_name_its_driver_gives(name, expected):
    sheet = datasheets.find(name)
    assert sheet is not None
    assert sheet.id == expected


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA L2",
        "NVIDIA A10M",
        "NVIDIA H100",
        "NVIDIA H800",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "Apple M1 Max",
        "NVIDIA X9000",
        "",
    ],
)
def test_an_unknown_device_has_no_datasheet_and_gets_no_other_ones(name):
    assert datasheets.find(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100", "h100-sxm"),
        ("NVIDIA H100", "h100-sxm"),
        ("H100 PCIe", "h100-pcie"),
        ("h100_nvl", "h100-nvl"),
        ("h200_sxm", "h200-sxm"),
        ("a100", "a100-sxm4-80gb"),
        ("A100 SXM4 40 GB", "a100-sxm4-40gb"),
        ("A100-80GB SXM", "a100-sxm4-80gb"),
        ("a100_pairwise_nvlink", "a100-sxm4-80gb"),
        ("A100-PCIE-80GB", "a100-pcie-80gb"),
        ("v100", "v100-sxm2-32gb"),
        ("Tesla V100-SXM3-32GB", "v100-sxm2-32gb"),
        ("DGX-1 (1x V100 16GB)", "v100-sxm2"),
        ("GH200 480GB", "gh200-96"),
        ("b200", "b200-sxm"),
        ("GB200 NVL72", "gb200"),
        ("4090", "rtx4090"),
        ("RTX 3090", "rtx3090"),
        ("RTX 3090 Ti", "rtx3090ti"),
        ("rtx3090ti", "rtx3090ti"),
        ("A10G", "a10g"),
        ("A10", "a10"),
        ("h20", "h20"),
        ("L20", "l20"),
        ("rtx2080ti", "rtx2080ti"),
        ("GTX 1080 Ti", "gtx1080ti"),
        ("A6000", "rtx-a6000"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("rtx6000ada", "rtx-6000-ada"),
        ("rtx_pro_6000_server", "rtx-pro-6000-bw-server"),
        ("pro6000maxq", "rtx-pro-6000-bw-maxq"),
        ("RTX PRO 6000 Max-Q", "rtx-pro-6000-bw-maxq"),
        ("mi250x", "mi250x-gcd"),
        ("MI250X (one GCD)", "mi250x-gcd"),
        ("RX 7900 XTX", "rx7900xtx"),
        ("M2 Ultra", "m2-ultra-76"),
        ("TPUv4", "tpu-v4"),
        ("i9_10940x", "cpu-i9-10940x"),
        ("Xeon 8480", "cpu-xeon-8480"),
    ],
)
def test_a_name_means_the_part_that_it_describes(name, expected):
    found = datasheets.meant(name)
    assert (found and found.id) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("RTX 3080 Ti", "rtx4070ti", "RTX 4080 Super", "RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        *("RTX 2080", "gtx1080", "RX 7900 XT", "RTX 6000", "Quadro RTX 6000", "A6000 Ada", "M1 Pro"),
        *("A10M", "A100X", "Tesla V100S-PCIE-32GB", "H800", "h10", "A1000", "L2", "MI350X"),
        *("Tesla P100-PCIE-12GB", "RTX 3080 12GB", "GH200 144GB", "A100-SXM-64GB"),
        *("H100 80GB HBM3 MIG 1g.10gb", "8xA100", "2x NVIDIA A100", "DGX H100 (8 x H100)"),
        *("NVIDIA", "cuda", "cpu", "100", "6000", "40gb", "nan", ""),
    ],
)
def test_a_name_that_describes_no_part_means_none(name):
    assert datasheets.meant(name) is None


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.id)
def test_ids_and_drivers_names_mean_themselves(sheet: Datasheet):
    """But for a package of two dies, which drivers show one by one."""
    assert all(datasheets.meant(name.replace(" ", "_")) is sheet for name in sheet.aliases)
    found = datasheets.meant(sheet.id)
    assert found is not None
    assert found.id == sheet.id or (sheet.id, found.id) == ("mi250x", "mi250x-gcd")


def test_at_least_forty_accelerators_are_listed():
    """From P4 to B200, from MI100 to MI355X, consumer cards and CPUs."""
    assert len(SHEETS) >= 40
    assert {"p4", "b200-sxm", "mi100", "mi355x", "rtx4090", "cpu-xeon-8480"} <= set(BY_ID)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.id)
def test_a_sheet_agrees_with_itself(sheet: Datasheet):
    """Caches are smaller than memory, matrix units no slower than vector units, and no card beats physics.

    The most efficient ones do 2.5 dense 16-bit TFLOP/s per watt; a sparse or misplaced figure would do more.
    """
    assert (sheet.l2_bytes or 0) < sheet.memory_bytes / 50
    for dtype in ("fp32", "fp64"):
        if dtype in sheet.matmul_flops_per_s and dtype in sheet.vector_flops_per_s:
            assert sheet.matmul_flops_per_s[dtype] >= 0.99 * sheet.vector_flops_per_s[dtype]
    if sheet.power_w and "bf16" in sheet.matmul_flops_per_s and sheet.vendor != "Google":
        assert sheet.matmul_flops_per_s["bf16"] / sheet.power_w < 2.6e12
    if sheet.base_clock_hz and sheet.boost_clock_hz and not sheet.id.startswith("cpu-"):
        assert sheet.base_clock_hz < sheet.boost_clock_hz


def test_near_suggests_what_was_meant():
    assert "h100-sxm" in datasheets.near("h100")
    assert "h200-sxm" in datasheets.near("NVIDIA H200 SXM")


def test_no_name_means_two_parts():
    names = Counter(name.lower() for sheet in SHEETS for name in {sheet.id, *(a.lower() for a in sheet.aliases)})
    assert max(names.values()) == 1


def test_every_row_says_where_it_is_from():
    for sheet in SHEETS:
        assert len(sheet.source) > 8, sheet.id


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.id)
def test_rates_have_the_right_magnitude(sheet: Datasheet):
    """Another tool's table had peaks a thousand times too high, and nobody noticed."""
    least_bytes = 5e10 if sheet.id.startswith("cpu-") else 1e11
    assert least_bytes <= sheet.dram_bytes_per_s <= 1e13
    for rate in sheet.matmul_flops_per_s.values():
        assert 1e11 <= rate <= 2e16
    for rate in sheet.vector_flops_per_s.values():
        assert 5e10 <= rate <= 2e14
    assert 4 << 30 <= sheet.memory_bytes <= 1 << 40


@pytest.mark.parametrize("sheet", NVIDIA_SINCE_AMPERE, ids=lambda sheet: sheet.id)
def test_rates_are_dense_and_double_from_type_to_type(sheet: Datasheet):
    """A sparse figure among dense ones shows as a factor of 4 where there should be 2."""
    matmul = sheet.matmul_flops_per_s
    assert matmul["bf16"] == matmul["fp16"]
    assert matmul["bf16"] == pytest.approx(2 * matmul["tf32"], rel=0.03)
    if "fp8" in matmul:
        assert matmul["fp8"] == pytest.approx(2 * matmul["bf16"], rel=0.03)
    if "fp4" in matmul and not sheet.id.startswith("rtx5090"):
        assert matmul["fp4"] == pytest.approx(2 * matmul["fp8"], rel=0.03)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.id)
def test_wider_types_are_never_faster(sheet: Datasheet):
    matmul = sheet.matmul_flops_per_s
    order = [matmul[mode] for mode in ("fp64", "fp32", "tf32", "bf16", "fp8") if mode in matmul]
    assert order == sorted(order)


@pytest.mark.parametrize("id_", ["h100-sxm", "h200-sxm", "gh200-96"])
def test_hopper_is_not_listed_with_sparsity(id_):
    assert BY_ID[id_].matmul_flops_per_s["bf16"] < 1000e12


def test_l4_has_300_gigabytes_a_second_and_121_teraflops():
    assert BY_ID["l4"].dram_bytes_per_s == 300e9
    assert BY_ID["l4"].matmul_flops_per_s["bf16"] == 121e12


def test_rtx_5090_has_terabytes_not_petabytes_a_second():
    assert BY_ID["rtx5090"].dram_bytes_per_s == 1.792e12


def test_the_articles_a100_is_there():
    sheet = BY_ID["a100-sxm4-40gb"]
    assert sheet.matmul_flops_per_s["bf16"] == 312e12
    assert sheet.vector_flops_per_s["fp32"] == 19.5e12
    assert sheet.dram_bytes_per_s == 1.555e12


@pytest.mark.parametrize("sheet", NVIDIA_SINCE_AMPERE, ids=lambda sheet: sheet.id)
def test_vector_rate_follows_from_cores_and_clock(sheet: Datasheet):
    """128 lanes a multiprocessor (64 on the A100 and A30), 2 FLOPs each: the sheet's boost clock within a tenth."""
    lanes = 64 if sheet.id.startswith(("a100", "a30")) else 128
    clock = sheet.vector_flops_per_s["fp32"] / (2 * lanes * sheet.multiprocessors)
    assert sheet.boost_clock_hz is not None
    assert clock == pytest.approx(sheet.boost_clock_hz, rel=0.1)


def test_a_gcd_is_half_of_its_package():
    whole, half = BY_ID["mi250x"], BY_ID["mi250x-gcd"]
    assert datasheets.find("AMD Instinct MI250X") is half
    assert 2 * half.memory_bytes == whole.memory_bytes
    assert 2 * half.dram_bytes_per_s == whole.dram_bytes_per_s
    for mode, rate in half.matmul_flops_per_s.items():
        assert 2 * rate == whole.matmul_flops_per_s[mode]


def test_rates_come_under_the_keys_of_the_ceilings():
    rates = BY_ID["h200-sxm"].rates
    assert rates["matmul_flops_per_s.bf16"] == 989.5e12
    assert rates["vector_flops_per_s.fp32"] == 66.9e12
    assert rates["dram_bytes_per_s"] == 4.8e12
