"""Where a step cannot be captured whole: what was compiled is compiled with CUDA graphs of its own, and as it was."""

from types import SimpleNamespace

import pytest
import torch
from torch._inductor import compile_fx

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, NotYet, Unfit
from gobrrr.treat.verify import truth, verified
from test_treat_treatments import bits, flags
from treating import Block

KIND = TREATMENTS["reduce-overhead"].kind

WHOLE = Dose(TREATMENTS["compile"], ("step",))
MODEL = Dose(TREATMENTS["compile"], ("model:",))
REGIONS = Dose(TREATMENTS["compile-regions"], ("model:0", "model:1"))
TUNED = Dose(TREATMENTS["compile-tuned"], ("step",))


def reading(device: str = "cpu", *, midst: bool = True) -> Subject:
    """Of a step that reads its loss, in the midst or in the end."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(64), Block(64), torch.nn.Linear(64, 4)).to(device)
    optimizer, x = torch.optim.AdamW(model.parameters(), lr=1e-2), torch.randn(8, 64, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scale = 2.0 if midst and loss.item() > 100 else 1.0
        (loss * scale).backward()
        optimizer.step()
        return loss.item()

    found = subject_of(lambda: step)
    for _ in range(3):
        found.run()
    return found


def graphed(dose: Dose) -> tuple[Dose, ...]:
    return dose, Dose(TREATMENTS["reduce-overhead"], ("step",))


@pytest.mark.parametrize("dose", [WHOLE, MODEL, REGIONS, TUNED], ids=lambda dose: f"{dose.treatment.name} {dose.sites}")
def test_all_that_was_compiled_is_compiled_with_graphs_and_nothing_without(dose, monkeypatch):
    told = []
    compile_as_ever = compile_fx.compile_fx

    def noted(*args, config_patches=None, **kwargs):
        if config_patches is not None:  # else it calls itself
            told.append(config_patches.get("triton.cudagraphs", False))
        return compile_as_ever(*args, config_patches=config_patches, **kwargs)

    monkeypatch.setattr(compile_fx, "compile_fx", noted)
    torch.compiler.reset()
    found = reading()
    before = bits(found), flags(found)
    turn = found.become(graphed(dose))
    with patient_compiler(), preserved(found.origin):
        found.run()
    assert told
    assert all(told)
    turn.to_before()
    assert (bits(found), flags(found)) == before


def test_it_is_for_what_a_treatment_has_compiled_on_a_cuda_device():
    found = reading()
    with pytest.raises(Unfit, match="CUDA device"):
        KIND.sites(SimpleNamespace(is_cuda=False, subject=found))
    with pytest.raises(NotYet, match="compiled by a treatment"):
        KIND.sites(SimpleNamespace(is_cuda=True, subject=found))
    found.become((REGIONS,))
    assert KIND.sites(SimpleNamespace(is_cuda=True, subject=found)) == ("step",)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.parametrize("dose", [WHOLE, REGIONS], ids=lambda dose: dose.treatment.name)
@pytest.mark.parametrize("midst", [True, False], ids=["read in the midst", "read in the end"])
def test_on_a_gpu_graphs_are_launched_and_compute_the_same(dose, midst):
    torch.compiler.reset()
    found = reading("cuda", midst=midst)
    known, before = truth(found), (bits(found), flags(found))
    turn = found.become(graphed(dose))
    with patient_compiler(), preserved(found.origin):
        checked = verified(found, known, found.plan)
        for _ in range(3):
            found.run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            found.run()
            torch.cuda.synchronize()
    assert checked.passed, checked
    turn.to_before()
    assert (bits(found), flags(found)) == before
    launched = [event.name for event in profile.events() if "cudaGraphLaunch" in event.name]
    assert len(launched) >= 2, "forward and backward"
