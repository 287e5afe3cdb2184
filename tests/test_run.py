"""`gobrrr run` as typed: the program is its own master, whatever it does."""

import pytest

from running import SCRIPTS, attended, plainly

PLAIN = str(SCRIPTS / "plain.py")

LOOP = """
import os, signal, sys
import torch
from torch import nn
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
def steps(number):
    for _ in range(number):
        step(torch.ones(3, 4))
"""

IDENTITY = """
import sys
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], main is not None, __name__, vars(main).get("__file__"), __spec__ and __spec__.name)
print(sys.stdin.read(), "torch" in sys.modules)
"""


def written(folder, *parts: str) -> str:
    (folder / "mine.py").write_text("\n".join(parts))
    return "mine.py"


# As Python would


@pytest.mark.parametrize("how", [("mine.py",), ("-m", "mine"), ("-c", IDENTITY)], ids=["script", "module", "code"])
def test_a_program_sees_what_python_would_show_it(tmp_path, how):
    written(tmp_path, IDENTITY)
    given = (*how, "--json", "its own", "-m", "x")
    ran, plain = (one(tmp_path, *given, input="typed") for one in (attended, plainly))
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.err == "gobrrr: the program never imported torch: there is nothing to examine\n"


@pytest.mark.parametrize(
    "leaves",
    ["sys.exit()", "sys.exit(7)", "sys.exit('in words')", "os._exit(3)", "1 / 0", "raise OSError('its own')", "def ("],
)
def test_the_exit_code_and_the_traceback_are_the_programs(tmp_path, leaves):
    script = written(tmp_path, "import os, sys", "def deep():", f"    {leaves}", "deep()")
    ran, plain = attended(tmp_path, script), plainly(tmp_path, script)
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.err == "gobrrr: the program never imported torch: there is nothing to examine\n" + plain.err


def test_a_program_that_is_not_there_is_2_and_one_line(tmp_path):
    assert attended(tmp_path, "none.py").err == "gobrrr: there is no file none.py\n"
    assert attended(tmp_path).code == 2
    assert attended(tmp_path, "-m", "none_such").err.endswith("ImportError: No module named none_such\n")


def test_megabytes_pass_through(tmp_path):
    ran = attended(tmp_path, "-c", "for _ in range(50_000): print('x' * 99)")
    assert ran.out == ("x" * 99 + "\n") * 50_000


def test_variables_that_torch_reads_when_it_is_imported_are_still_the_programs_to_set(tmp_path):
    code = "import os; os.environ['OMP_NUM_THREADS'] = '2'; import torch; print(torch.get_num_threads())"
    assert attended(tmp_path, "-c", code).out == "2\n"


# Programs that end before, or never begin


def test_a_program_that_raises_shows_its_own_traceback_and_what_was_seen(tmp_path):
    breaks = """
class Breaks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("in the backward")
steps(8)
try:
    1 / 0
except ZeroDivisionError:
    Breaks.apply(torch.ones(3, requires_grad=True)).sum().backward()
"""
    script = written(tmp_path, LOOP, breaks)
    ran, plain = attended(tmp_path, script), plainly(tmp_path, script)
    assert (ran.code, ran.out) == (plain.code, plain.out) == (1, "")
    assert ran.err.endswith(plain.err)
    assert "gobrrr: the program ended after 5 steps of about " in ran.err.removesuffix(plain.err)


def test_a_program_without_steps_is_told_what_was_heard(tmp_path):
    ran = attended(tmp_path, written(tmp_path, LOOP, "steps(2)", "os._exit(4)"))
    assert ran.code == 4
    assert ran.err == (
        "gobrrr: no step was found: nothing repeats in 1 calls of a model, 2 backward passes and 1 optimizer steps "
        "that were heard; a verdict takes about 40 steps, or a few seconds of shorter ones\n"
    )


@pytest.mark.parametrize(
    ("ends", "code"),
    [("", 0), ("os._exit(3)", 3), ("signal.raise_signal(signal.SIGINT)", 130), ("1 / 0", 1)],
    ids=["ends", "os._exit", "^C", "raises"],
)
def test_fewer_steps_make_an_exam_all_the_same_however_the_program_leaves(tmp_path, ends, code):
    ran = attended(tmp_path, written(tmp_path, LOOP, "steps(21)", ends))
    assert ran.code == code
    assert ran.diagnosis["step_period"] == 1
    assert any("of 3 windows fit into the time" in warning for warning in ran.diagnosis["quality"]["warnings"])
    assert "gobrrr: measuring what this machine can do" in ran.err


# Programs that are not simple


def test_stop_ends_the_program_with_the_verdict(tmp_path):
    ran = attended(
        tmp_path, "--stop", written(tmp_path, LOOP, "try:\n    steps(10**9)\nfinally:\n    print('put away')")
    )
    assert (ran.code, ran.out) == (0, "put away\n")
    assert "next: gobrrr show last" in ran.err


def test_an_interrupt_that_the_program_catches_is_its_own(tmp_path):
    caught = "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('caught')"
    ran = attended(tmp_path, written(tmp_path, LOOP, "steps(15)", caught, "steps(25)"))
    assert (ran.code, ran.out) == (0, "caught\n")
    assert ran.diagnosis["steps"] == 3


FORKS = """
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
def child():
    x = model(torch.ones(3, 4))
    bare = not _get_current_dispatch_mode_stack() and not torch.autograd._profiler_enabled()
    hooks = len(model._forward_hooks), torch.autograd.backward.__qualname__, "step" in vars(optimizer)
    return f"{bare} {hooks} {torch.autograd.backward.__code__.co_filename.endswith('autograd/__init__.py')}"
for number in range(40):
    step(torch.ones(3, 4))
    reader, writer = os.pipe()
    if not (number % 3):
        pid = os.fork()
        if not pid:
            os.write(writer, child().encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(os.read(reader, 1000).decode())
"""


def test_children_carry_nothing_of_ours(tmp_path):
    ran = attended(tmp_path, written(tmp_path, LOOP, FORKS))
    assert ran.code == 0
    assert set(ran.out.splitlines()) == {"True (0, 'backward', False) True"}
    assert ran.diagnosis["step_period"] == 1


def test_spawned_processes_import_the_program_as_they_would(tmp_path):
    spawns = """
import multiprocessing
def named():
    print(__name__, os.path.basename(__file__), flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=named)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
    ran = attended(tmp_path, written(tmp_path, "import os, sys", spawns))
    assert (ran.code, ran.out) == (0, "__mp_main__ mine.py\n")


def test_scaler_skips_and_evaluations_do_not_hide_the_step(tmp_path):
    odd = """
for number in range(60):
    loss = model(torch.ones(3, 4)).square().mean()
    loss.backward()
    if number > 4 and number % 9:
        optimizer.step()
    if number % 7 == 0:
        with torch.no_grad():
            [model(torch.ones(3, 4)) for _ in range(3)]
"""
    ran = attended(tmp_path, written(tmp_path, LOOP, odd))
    assert (ran.code, ran.diagnosis["step_period"]) == (0, 1)
    assert {row["phase"] for row in ran.diagnosis["ops"]} >= {"forward", "backward", "optimizer"}


def test_of_several_shapes_the_most_frequent_is_examined(tmp_path):
    shapes = "for number in range(80):\n    step(torch.ones(3 if number % 3 else 9, 4))"
    ran = attended(tmp_path, written(tmp_path, LOOP, shapes))
    assert any(
        warning.startswith("steps of 2 shapes passed: those of one, 6")
        for warning in ran.diagnosis["quality"]["warnings"]
    )
    (product,) = [row for row in ran.diagnosis["ops"] if row["name"] == "aten::addmm"]
    assert product["flops"] == 2 * 3 * 4 * 2 + 3 * 2


def test_a_profiler_of_the_programs_own_is_left_alone(tmp_path):
    own = "with torch.profiler.profile() as profiler:\n    steps(40)\nprint(bool(profiler.events()))"
    ran = attended(tmp_path, written(tmp_path, LOOP, own))
    assert (ran.code, ran.out) == (0, "True\n")
    assert "gobrrr: a profiler runs already, and torch has room for one" in ran.err


def test_a_loop_in_a_thread_is_examined_there(tmp_path):
    threaded = "import threading\nthread = threading.Thread(target=steps, args=(40,))\nthread.start()\nthread.join()"
    ran = attended(tmp_path, written(tmp_path, LOOP, threaded))
    assert (ran.code, ran.diagnosis["steps"]) == (0, 3)


COMPILED = """
from torch._dynamo.utils import counters
compiled = torch.compile(model, backend="eager")
for number in range(45):
    loss = compiled(torch.ones(3, 4)).square().mean()
    {training}
print(dict(counters["stats"]), dict(counters["recompiles"]), loss.item().hex())
"""


@pytest.mark.parametrize("training", ["loss.backward(); optimizer.step(); optimizer.zero_grad()", "pass"])
def test_what_is_compiled_is_compiled_once(tmp_path, training):
    script = written(tmp_path, "import torch", "torch.manual_seed(0)", LOOP, COMPILED.format(training=training))
    ran, plain = attended(tmp_path, script), plainly(tmp_path, script)
    assert (ran.code, ran.out) == (0, plain.out)
    assert "'unique_graphs': 1" in ran.out
    assert ran.diagnosis["step_period"] == 1


def test_step_by_overrides(tmp_path):
    accumulating = (
        "for number in range(120):\n    model(torch.ones(3, 4)).sum().backward()\n    number % 3 or optimizer.step()"
    )
    found = {
        by: attended(tmp_path, *by, written(tmp_path, LOOP, accumulating)).diagnosis["step_period"]
        for by in ((), ("--step-by", "backward"))
    }
    assert found == {(): 3, ("--step-by", "backward"): 1}


BROKEN = """
import torch
@torch.compile(backend="eager")
def infer(x):
    x = x @ x
    torch._dynamo.graph_break()
    return x.relu()
for _ in range(45):
    infer(torch.ones(8, 8))
"""


def test_a_compiled_function_is_a_loop_too_and_its_graph_breaks_are_named(tmp_path):
    ran = attended(tmp_path, "-c", BROKEN)
    assert ran.code == 0
    assert "B106" in {one["code"] for one in ran.diagnosis["findings"]}
