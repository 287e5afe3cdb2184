"""`gobrrr count`: what it prints, and one sentence with an exit code for everything that can be wrong."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from gobrrr import cli
from gobrrr.work.count import count_workload
from gobrrr.work.op import OpClass, Phase

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"


@pytest.fixture
def count(monkeypatch, capsys):
    """Types `gobrrr count ARGS…` and returns exit code, stdout and stderr; what it imports is forgotten."""

    def typed(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gobrrr", "count", *args])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        return exited.value.code or 0, *capsys.readouterr()

    yield typed
    for name in ("mine", "transformer"):
        sys.modules.pop(name, None)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes mine.py, with torch and Workload imported, and returns `mine.py:NAME`."""
    monkeypatch.chdir(tmp_path)
    head = "import torch\nfrom torch import nn\nfrom gobrrr import Workload\n"

    def target(body: str, name: str = "make") -> str:
        Path("mine.py").write_text(head + body)
        return f"mine.py:{name}"

    return target


PAIR = "def make():\n    return nn.Linear(4, 3), torch.ones(2, 4)\n"
TRAINED = """
def make():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    return Workload(model, torch.randn(5, 4), loss=lambda y: y.square().mean(), optimizer=optimizer)
"""


# **** what it prints ****


@pytest.fixture(scope="module")
def example() -> dict:
    """The JSON of the transformer that the examples hold, in training."""
    from click.testing import CliRunner

    result = CliRunner().invoke(cli.gobrrr, ["count", f"{EXAMPLE}:training", "--json"])
    sys.modules.pop("transformer", None)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_the_keys_that_others_rely_on_are_there(example):
    promised = "schema_version flops flops_dense bytes classes coverage peak_memory_bytes saved_activation_bytes ops"
    assert set(promised.split()) <= set(example)
    assert set(example["coverage"]) == {"formula", "default", "unknown"}
    assert all({"flops", "bytes"} <= set(share) for share in example["classes"].values())
    assert set(example["classes"]) <= {str(cls) for cls in OpClass}
    assert set(example["phases"]) <= {str(phase) for phase in Phase}
    row = "name cls module phase source shapes dtypes calls flops flops_dense bytes intensity counted_by"
    assert all(set(row.split()) <= set(op) for op in example["ops"])


@pytest.mark.parametrize("quantity", ["flops", "bytes", "flops_dense"])
@pytest.mark.parametrize("parts", ["classes", "phases", "ops"])
def test_the_parts_add_to_the_whole(example, parts, quantity):
    rows = example[parts] if parts == "ops" else example[parts].values()
    assert sum(row[quantity] for row in rows) == pytest.approx(example[quantity], rel=1e-12)


def test_the_root_module_holds_all_but_loss_and_optimizer(example):
    root = example["modules"]["Transformer"]["flops_dense"]
    assert root == example["flops_dense"]


def test_the_transformer_of_the_examples_is_a_closed_form(example):
    made = runpy.run_path(str(EXAMPLE))
    width, tokens = made["WIDTH"], made["BATCH"] * made["LENGTH"]
    weights = made["LAYERS"] * 12 * width**2 + width * made["VOCABULARY"]
    attention = made["LAYERS"] * 4 * made["BATCH"] * made["LENGTH"] ** 2 * width
    assert example["flops_dense"] == 3 * 2 * tokens * weights + 3.5 * attention
    assert sum(example["matrix_flops"].values()) == 3 * 2 * tokens * weights + 3.5 * attention / 2  # causal
    assert example["coverage"] == {"formula": 1, "default": 0, "unknown": 0}


def test_the_memory_of_the_transformer_holds_parameters_state_and_activations(example):
    made = runpy.run_path(str(EXAMPLE))
    model = made["training"]().model
    parameters = sum(parameter.numel() for parameter in model.parameters())
    ids = 8 * made["BATCH"] * made["LENGTH"]
    tensors = len(list(model.parameters()))
    assert example["resident_memory_bytes"] == 3 * 4 * parameters + ids + 4 * tensors
    assert example["peak_memory_bytes"] > example["resident_memory_bytes"] + example["saved_activation_bytes"]


def test_inference_of_the_transformer_is_its_forward_pass(count):
    code, out, _ = count(f"{EXAMPLE}:inference", "--json")
    document = json.loads(out)
    assert code == 0
    assert {phase for phase, share in document["phases"].items() if share["calls"]} == {"forward"}
    assert document["saved_activation_bytes"] == 0


def test_stdout_is_one_line_of_json_and_nothing_else(count, written):
    code, out, err = count(written(PAIR), "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert json.loads(out)["flops_dense"] == 2 * 2 * 3 * 4


def test_what_the_users_code_prints_goes_to_stderr(count, written):
    body = 'print("at import")\nclass Loud(nn.Linear):\n    def forward(self, x):\n        print("in the step")\n'
    body += "        return super().forward(x)\ndef make():\n    print('in the factory')\n"
    _, out, err = count(written(body + "    return Loud(4, 3), torch.ones(2, 4)\n"), "--json")
    assert json.loads(out)["flops_dense"] == 2 * 2 * 3 * 4
    assert err.split("\n")[:3] == ["at import", "in the factory", "in the step"]


def test_without_json_a_person_gets_tables_and_the_next_command(count, written):
    code, out, err = count(written(PAIR))
    assert (code, err) == (0, "")
    assert "mine.py:make" in out
    assert "addmm" in out
    assert out.rstrip().splitlines()[-1].startswith("next: gobrrr ")


def test_an_op_without_a_formula_is_named_to_a_person(count, written):
    body = "class Q(nn.Module):\n    def forward(self, x):\n        return torch.linalg.qr(x)\n"
    _, out, _ = count(written(body + "def make():\n    return Q(), torch.ones(4, 4)\n"))
    assert "by default: aten::linalg_qr (1)" in out


# **** what it takes ****


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(PAIR, id="a pair"),
        pytest.param("def make():\n    return Workload(nn.Linear(4, 3), torch.ones(2, 4))\n", id="a workload"),
        pytest.param(
            "def make():\n    return Workload(nn.Linear(4, 3), [torch.ones(2, 4)])\n", id="inputs by position"
        ),
        pytest.param("def make():\n    return nn.Linear(4, 3), {'input': torch.ones(2, 4)}\n", id="inputs by name"),
        pytest.param(
            "def make():\n    m, x = nn.Linear(4, 3), torch.ones(2, 4)\n    return lambda: m(x)\n", id="a bare step"
        ),
        pytest.param(
            "class make(nn.Module):\n    def __new__(cls):\n        return nn.Linear(4, 3), torch.ones(2, 4)\n",
            id="anything callable",
        ),
    ],
)
def test_a_factory_may_return_a_workload_a_pair_or_a_step(count, written, body):
    code, out, err = count(written(body), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["flops_dense"] == 2 * 2 * 3 * 4


def test_a_file_may_import_its_neighbours(count, written):
    Path("neighbour.py").write_text("WIDTH = 3\n")
    body = "from neighbour import WIDTH\ndef make():\n    return nn.Linear(4, WIDTH), torch.ones(2, 4)\n"
    assert count(written(body), "--json")[0] == 0
    del sys.modules["neighbour"]


def test_the_second_step_is_counted_when_the_optimizer_has_its_state(count, written):
    document = json.loads(count(written(TRAINED), "--json")[1])
    parameters = 4 * 3 + 3 + 3 * 2 + 2
    assert document["phases"]["optimizer"]["calls"] > 0
    assert not any("zeros" in op["name"] for op in document["ops"] if op["phase"] == "optimizer")
    assert document["resident_memory_bytes"] >= 3 * 4 * parameters


# **** fake and real ****


def test_a_count_leaves_the_users_random_numbers_as_they_were(count, written):
    target = written(TRAINED)
    before = torch.get_rng_state()
    assert count(target)[0] == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_a_count_on_fake_tensors_leaves_no_mode_behind(count, written):
    count(written(TRAINED))
    assert type(torch.ones(2) + 1) is torch.Tensor


@pytest.mark.parametrize(("real", "kind"), [(False, "FakeTensor"), (True, "Tensor")])
def test_two_steps_run_and_only_real_ones_compute(real, kind):
    seen = []

    def make() -> object:
        model, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
        return lambda: seen.append(type(model(x)).__name__)

    count_workload(make, real=real)
    assert seen == [kind, kind]


def test_a_real_count_is_that_on_fake_tensors(count, written):
    """--real builds the model and runs two steps of it on this machine, drawing random numbers as any run would."""
    target = written(TRAINED)
    fake, real = (json.loads(count(target, "--json", *flags)[1]) for flags in ([], ["--real"]))
    assert real == fake


VALUES = """
class Asks(nn.Module):
    def forward(self, x):
        return x if x.sum().item() > 0 else -x
def make():
    return Asks(), torch.randn(200, 200)
"""


def test_a_model_that_reads_values_is_told_which_op_and_to_add_real(count, written):
    code, out, err = count(written(VALUES))
    assert (code, out) == (5, "")
    assert err == (
        "gobrrr: aten._local_scalar_dense.default reads the values of a tensor at mine.py:7, and fake tensors have "
        "none: add --real to count while running on this machine\n"
    )
    assert count("mine.py:make", "--real", "--json")[0] == 0


def test_a_schedule_of_small_numbers_may_be_read(count, written):
    body = "def make():\n    rates = [r.item() for r in torch.linspace(0, 0.1, 3)]\n"
    assert count(written(body + "    return nn.Dropout(rates[1]), torch.ones(2, 4)\n"))[0] == 0


# **** what can be wrong ****

WRONG = {
    "a factory that raises": (
        "def make():\n    raise ValueError('a first line\\nand a second')\n",
        5,
        "the factory raised ValueError at mine.py:5: a first line",
    ),
    "a factory that leaves": (
        "def make():\n    raise SystemExit(0)\n",
        5,
        "the factory raised SystemExit at mine.py:5: 0",
    ),
    "a file that raises": ("1 / 0\n", 5, "mine.py raised ZeroDivisionError at mine.py:4: division by zero"),
    "a file that is no Python": ("def make(:\n", 5, "mine.py raised SyntaxError: invalid syntax (mine.py, line 4)"),
    "a package that is not there": (
        "import no_such_package\n",
        5,
        "mine.py raised ModuleNotFoundError at mine.py:4: No module named 'no_such_package'",
    ),
    "nothing returned": (
        "def make():\n    pass\n",
        2,
        "the factory returned nothing: return a gobrrr.Workload, a (model, inputs) pair or a step to call",
    ),
    "nonsense returned": (
        "def make():\n    return 42\n",
        2,
        "the factory returned an int: return a gobrrr.Workload, a (model, inputs) pair or a step to call",
    ),
    "a model without inputs": (
        "def make():\n    return nn.Linear(2, 2)\n",
        2,
        "the factory returned a Linear: return a gobrrr.Workload, a (model, inputs) pair or a step to call",
    ),
    "a loss that is no scalar": (
        "def make():\n    return Workload(nn.Linear(2, 2), torch.ones(3, 2), loss=lambda y: y)\n",
        2,
        "the workload trains but its loss is a tensor of shape (3, 2), not a scalar tensor: pass Workload(loss=...)",
    ),
    "shapes that do not fit": (
        "def make():\n    x = torch.ones(3, 2)\n    return lambda: x @ x\n",
        5,
        (
            "the step raised RuntimeError at mine.py:6: "
            "a and b must have same reduction dim, but got [3, 2] X [3, 2].; "
            "if it runs by itself it needs values that fake tensors lack: add --real"
        ),
    ),
    "a name that is not there": (
        "def one(): ...\ndef other(): ...\n",
        2,
        "mine.py has no function 'make'; it has: one, other",
    ),
    "a file without functions": ("make = 3\n", 2, "mine.py has no function 'make'; it has: none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_one_sentence_and_an_exit_code(count, written, name):
    body, code, sentence = WRONG[name]
    assert count(written(body), "--json") == (code, "", f"gobrrr: {sentence}\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is here")
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(
            [],
            id="fake",
            marks=pytest.mark.skipif(
                torch.backends.cuda.is_built(), reason="torch was built to count without a device"
            ),
        ),
        pytest.param(["--real"], id="real"),
    ],
)
def test_a_workload_for_a_gpu_that_is_not_there_misses_a_device(count, written, flags):
    body = "def make():\n    return nn.Linear(2, 2).cuda(), torch.ones(2, 2).cuda()\n"
    code, out, err = count(written(body), *flags)
    assert (code, out) == (6, "")
    assert err.startswith("gobrrr: the factory asks for a device that is not here at mine.py:5: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("no_such.py:make", "there is no file no_such.py: write FILE.py:NAME with a file of yours"),
        ("mine.py", "'mine.py' is not of the form FILE.py:NAME"),
        (":make", "':make' is not of the form FILE.py:NAME"),
        ("mine.py:", "'mine.py:' is not of the form FILE.py:NAME"),
        ("mine.py:two words", "'mine.py:two words' is not of the form FILE.py:NAME"),
        ("notes.txt:make", "notes.txt is not a Python file"),
    ],
)
def test_a_target_that_is_none_is_a_mistake_of_usage(count, written, target, sentence):
    written(PAIR)
    Path("notes.txt").write_text("make")
    assert count(target) == (2, "", f"gobrrr: {sentence}\n")


def test_no_target_is_a_mistake_of_usage(count):
    code, out, err = count()
    assert (code, out) == (2, "")
    assert "FILE.py:NAME" in err


def test_torch_that_is_missing_is_named_with_the_extra_that_brings_it(count, written, monkeypatch):
    target = written(PAIR)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert count(target) == (6, "", "gobrrr: torch is needed here and not installed: pip install 'gobrrr[torch]'\n")


def test_the_line_is_the_users_own_even_in_a_folder_called_gobrrr(count, tmp_path, monkeypatch):
    folder = tmp_path / "gobrrr" / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("mine.py").write_text("def make():\n    return 1 / 0\n")
    assert count("mine.py:make")[2] == "gobrrr: the factory raised ZeroDivisionError at mine.py:2: division by zero\n"


def test_an_interrupt_in_the_users_code_is_130(count, written):
    code, out, err = count(written("def make():\n    raise KeyboardInterrupt\n"))
    assert (code, out, err.strip()) == (130, "", "gobrrr: interrupted")
