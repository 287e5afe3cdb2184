"""The arrows of the design point one way, and what needs no torch imports none."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import gobrrr

LAYERS = (
    ("units", "stats", "errors", "schema", "json_schema", "extras", "dtypes", "folders", "steps"),
    ("workload",),
    ("machine", "work"),
    ("timing",),
    ("bounds", "exam"),
    ("examination", "trace_examination", "trace_cache", "diagnose", "history"),
    ("predict",),
    ("treat",),
    ("lab",),
    ("report",),
    ("ranks",),
    ("integrations",),
    ("gobrrr",),  # the public face in gobrrr/__init__.py
    ("patients",),
    ("cli", "__main__"),
)
"""The parts of the package from left to right: a part imports from its own layer and from those before it."""

DEPTH = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
TORCHLESS = ("exam", "diagnose", "history", "predict", "ranks", "report")
LOADERS = {"need", "import_module", "__import__"}


@dataclass(frozen=True)
class Module:
    """One file's imports, ours spelled as far as the module they name."""

    everywhere: frozenset[str]
    on_import: frozenset[str]
    """Only those that run when the module itself is imported: none of a function's, none for type checkers."""


Modules = Mapping[str, Module]


def read_modules(root: Path) -> Modules:
    sources = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        sources[".".join(parts[:-1] if is_package else parts)] = (is_package, ast.parse(path.read_text()))

    def imported(nodes: Iterator[ast.AST], package: str) -> frozenset[str]:
        names = (name for node in nodes for name in imported_names(node, package))
        return frozenset(name if name in sources else name.rpartition(".")[0] or name for name in names)

    modules = {}
    for name, (is_package, tree) in sources.items():
        package = name if is_package else name.rpartition(".")[0]
        modules[name] = Module(imported(ast.walk(tree), package), imported(run_on_import(tree), package))
    return modules


def imported_names(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names, level):
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            base = ".".join([*above, *([module] if module else [])])
            yield from (f"{base}.{alias.name}" for alias in names)
        case ast.Call(ast.Name(loader) | ast.Attribute(attr=loader), [ast.Constant(str(module)), *_]):
            if loader in LOADERS:
                yield module


def run_on_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_on_import(child)


def part_of(module: str) -> str:
    """`gobrrr.work.counter` belongs to `work`, and `gobrrr` to itself."""
    return [*module.split("."), module][1]


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "gobrrr"


def is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def homeless_modules(modules: Modules) -> list[str]:
    return [name for name in modules if part_of(name) not in DEPTH]


def arrows_to_the_right(modules: Modules) -> list[str]:
    return [
        f"{name} imports {target}"
        for name, module in modules.items()
        for target in sorted(filter(is_ours, module.everywhere))
        if DEPTH[part_of(target)] > DEPTH[part_of(name)]
    ]


def imports_of_torch(modules: Modules) -> list[str]:
    """In torchless parts: what names torch anywhere, or reaches it when imported."""
    torchless = [name for name in modules if part_of(name) in TORCHLESS]
    naming = [name for name in torchless if any(map(is_torch, modules[name].everywhere))]
    chains = [way_to_torch(modules, name) for name in torchless]
    return naming + [" → ".join(chain) for chain in chains if chain]


def way_to_torch(modules: Modules, start: str) -> list[str] | None:
    """The shortest chain of imports from one of our modules to torch, if there is any."""
    ways, seen = [[start]], {start}
    for way in ways:  # grows while we walk: breadth first
        run = [name for name in with_parents(way[-1]) if name in modules]
        for target in sorted(target for name in run for target in modules[name].on_import):
            if is_torch(target):
                return [*way, target]
            if target in modules and target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return None


def with_parents(module: str) -> list[str]:
    """Importing a.b.c runs a and a.b first."""
    names = module.split(".")
    return [".".join(names[: end + 1]) for end in range(len(names))]


def python(code: str, *args: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def modules() -> Modules:
    return read_modules(Path(gobrrr.__file__).parent)


def test_every_module_belongs_to_a_layer(modules):
    assert homeless_modules(modules) == []


def test_arrows_point_one_way(modules):
    assert arrows_to_the_right(modules) == []


def test_exams_are_diagnosed_and_rendered_without_torch(modules):
    assert imports_of_torch(modules) == []


def test_importing_every_torchless_module_leaves_torch_out(modules):
    bottom_and_torchless = {*LAYERS[0], *TORCHLESS}
    names = [name for name in modules if part_of(name) in bottom_and_torchless]
    code = "import sys, importlib as i; [i.import_module(m) for m in sys.argv[1:]]; print('torch' in sys.modules)"
    assert python(code, *names).strip() == "False"


def test_help_imports_click_and_nothing_else():
    """Nor torch nor rich, that is: what is loaded at exit, less what click and this interpreter load anyway."""

    def loaded_after(code: str) -> set[str]:
        at_exit = "import atexit, sys; atexit.register(lambda: print(*{m.split('.')[0] for m in sys.modules}))"
        return set(python(f"{at_exit}; {code}", "--help").splitlines()[-1].split())

    extra = loaded_after("from gobrrr.cli import main; main()") - loaded_after("import click")
    assert extra - sys.stdlib_module_names == {"gobrrr"}


# The walk itself, on trees small enough to see through.


def tree(root: Path, sources: Mapping[str, str]) -> Modules:
    for name, source in {"__init__.py": "", **sources}.items():
        path = root / "gobrrr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return read_modules(root / "gobrrr")


@pytest.mark.parametrize(
    ("sources", "arrow"),
    [
        ({"units.py": "import gobrrr.exam", "exam.py": ""}, "gobrrr.units imports gobrrr.exam"),
        ({"units.py": "from gobrrr import exam", "exam.py": ""}, "gobrrr.units imports gobrrr.exam"),
        ({"units.py": "from gobrrr import examine"}, "gobrrr.units imports gobrrr"),
        ({"units.py": "from . import exam", "exam.py": ""}, "gobrrr.units imports gobrrr.exam"),
        ({"units.py": "def f():\n from gobrrr.exam import Exam", "exam.py": ""}, "gobrrr.units imports gobrrr.exam"),
        ({"work/a.py": "from ..exam import Exam", "exam.py": ""}, "gobrrr.work.a imports gobrrr.exam"),
        ({"work/__init__.py": "from ..exam import Exam", "exam.py": ""}, "gobrrr.work imports gobrrr.exam"),
        ({"work/__init__.py": "from .a import A", "work/a.py": ""}, None),
        ({"exam.py": "from gobrrr.work.a import A", "work/a.py": ""}, None),
        ({"machine/a.py": "from gobrrr.work.a import A", "work/a.py": ""}, None),
        ({"cli/a.py": "from gobrrr import examine\nfrom gobrrr.units import seconds", "units.py": ""}, None),
    ],
)
def test_the_walk_sees_an_arrow_that_points_the_wrong_way(tmp_path, sources, arrow):
    assert arrows_to_the_right(tree(tmp_path, sources)) == ([arrow] if arrow else [])


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"exam.py": "import json"}, []),
        ({"exam.py": "def f():\n import torch.nn"}, ["gobrrr.exam"]),
        ({"exam.py": "need('torch', 'torch')"}, ["gobrrr.exam", "gobrrr.exam → torch"]),
        ({"exam.py": "from gobrrr.work import a", "work/a.py": "def f():\n import torch"}, []),
        (
            {"exam.py": "from gobrrr.work.a import A", "work/a.py": "if TYPE_CHECKING:\n import torch"},
            [],
        ),
        (
            {"exam.py": "from gobrrr.work.a import A", "work/a.py": "try:\n import torch\nexcept OSError: 1"},
            ["gobrrr.exam → gobrrr.work.a → torch"],
        ),
        (
            {"exam.py": "from gobrrr.work import a", "work/a.py": "", "work/__init__.py": "from torch import nn"},
            ["gobrrr.exam → gobrrr.work.a → torch"],
        ),
        (
            {"report/a.py": "from gobrrr.units import x", "units.py": "from gobrrr.work import y", "work/y.py": ""},
            [],
        ),
    ],
)
def test_the_walk_sees_torch_behind_other_modules(tmp_path, sources, found):
    assert imports_of_torch(tree(tmp_path, sources)) == found


def test_the_walk_sees_a_module_that_no_layer_names(tmp_path):
    assert homeless_modules(tree(tmp_path, {"misc.py": "", "work/a.py": ""})) == ["gobrrr.misc"]
