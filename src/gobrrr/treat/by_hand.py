"""A treatment as code that does the same by hand, to what its user has: the model, the optimizer, the step."""

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import Any

from gobrrr.treat.compiling import FOR_CPUS, FOR_GPUS, is_torchs_own
from gobrrr.treat.cross_entropy import LOSS
from gobrrr.treat.optimizers import COUNTS
from gobrrr.treat.subject import AND, Subject
from gobrrr.treat.treatment import Dose, Treatment

WIDTH = 60
"""Of what stands in one line: a terminal breaks a longer one, and code that is broken does not run."""

ALIKE = 3
"""Names that differ by a number, at the least, to be written as one."""


def written_out(dose: Dose, subject: Subject) -> str:
    """After a line that says what its names mean."""
    parts = [_filled(dose.treatment, subject, sites) for sites in _by_owner(dose.sites)]
    code = _imports_first("\n".join(parts))
    return f"# {dose.treatment.name}{_meaning(code, subject)}\n{code}".strip()


PASSED_OVER = """\
def seen(module):  # torch's own, which .compile() passes over
    call = module._call_impl
    called = lambda *args, **kwargs: call(*args, **kwargs)
    return torch.compile(called, options=options)


"""


COMPILED_LOSS = """\
from torch.nn import functional

own = functional.cross_entropy


@torch.compile(options=options)
def compiled_loss(*args, **kwargs):
    return own(*args, **kwargs)


def cross_entropy(input, *args, **kwargs):
    traced = torch.compiler.is_compiling() or type(input) is not torch.Tensor
    return (own if traced else compiled_loss)(input, *args, **kwargs)


functional.cross_entropy = cross_entropy
"""


def optimizer_name(place: int) -> str:
    """As models are named."""
    return f"optimizer{place or ''}"


def _by_owner(sites: Sequence[str]) -> list[tuple[str, ...]]:
    """Of each model the sites in it, and each optimizer by itself; a loss with the first of them."""
    owned: defaultdict[str, list[str]] = defaultdict(list)
    for site in sites:
        owned[next(iter(owned), site) if site == LOSS else site.partition(":")[0]].append(site)
    return [tuple(own) for own in owned.values()]


def _filled(treatment: Treatment, subject: Subject, sites: tuple[str, ...]) -> str:
    owner = sites[0].partition(":")[0]
    words = {
        "model": owner,
        "names": listed(_paths(site) for site in sites),
        "optimizer": optimizer_name(int(owner)) if owner.isdecimal() else "",
        "options": as_dict(FOR_GPUS if subject.device.startswith("cuda") else FOR_CPUS),
        "compiled": _compiled(subject, sites),
        "device_type": json.dumps(subject.device.partition(":")[0]),
    }
    return Template(treatment.by_hand).substitute({**words, **treatment.fills(subject, sites)})


def _compiled(subject: Subject, sites: tuple[str, ...]) -> str:
    """The step, a model or its blocks, and a loss, with `options`. Optimizers have kernels for all parameters at once
    already.
    """
    if sites == ("step",):
        names = map(optimizer_name, range(len(subject.optimizers)))
        kept = [f"{name}.step = torch.compiler.disable({name}.step)  # schedulers first" for name in names]
        return "\n".join([*kept, "step = torch.compile(step, options=options)"])
    losses = [COMPILED_LOSS] if LOSS in sites else []
    modules = [_compiled_modules(subject, own)] if (own := tuple(site for site in sites if site != LOSS)) else []
    return "\n".join([*modules, *losses])


def _compiled_modules(subject: Subject, sites: tuple[str, ...]) -> str:
    root, _, path = sites[0].partition(":")
    modules = [module for site in sites if ":" in site for module in subject.modules_at(site)]
    own = any(map(is_torchs_own, modules))
    first, code = (PASSED_OVER, "{0}._compiled_call_impl = seen({0})") if own else ("", "{0}.compile(options=options)")
    if not path:
        return first + code.format(root)
    each = code.format("module")
    return f"{first}for name in {listed(map(_paths, sites))}:\n    module = {root}.get_submodule(name)\n    {each}"


def _paths(site: str) -> tuple[str, ...]:
    return tuple(name.partition(":")[2] for name in site.split(AND))


def _imports_first(code: str) -> str:
    """Each once: of two models, both need them."""
    lines = code.splitlines()
    imports = dict.fromkeys(line for line in lines if line.startswith(("import ", "from ")))
    rest = "\n".join(line for line in lines if line not in imports).strip("\n")
    return "\n".join([*imports, "", rest]) if imports else rest


def _meaning(code: str, subject: Subject) -> str:
    """Of those names alone that occur in it."""
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    kinds = {name: type(model).__name__ for name, model in subject.models.items()}
    kinds |= {optimizer_name(place): type(one).__name__ for place, one in enumerate(subject.optimizers)}
    kinds["step"] = "function of one step"
    said = [f"{name} is your {kind}" for name, kind in kinds.items() if name in used]
    return f": {', '.join(said)}" if said else ""


# **** Python's literals ****


def spread(brackets: str, items: Sequence[str]) -> str:
    """In one line where it is short, else one line each."""
    lone = "," if brackets == "()" and len(items) == 1 else ""
    short = f"{brackets[0]}{', '.join(items)}{lone}{brackets[1]}"
    each = "".join(f"    {item},\n" for item in items)
    return short if len(short) <= WIDTH else f"{brackets[0]}\n{each}{brackets[1]}"


def as_dict(values: Mapping[str, Any]) -> str:
    return spread("{}", [f"{json.dumps(key)}: {value!r}" for key, value in values.items()])


def listed(entries: Iterable[tuple[str, ...]]) -> str:
    """Paths, or tuples of them. Blocks of a model have as many, with another number each: those are one line."""
    own = {entry: dict(_numbered(entry)) for entry in entries}
    times = Counter(pattern for patterns in own.values() for pattern in patterns)
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for entry, patterns in own.items():
        best = max(patterns, key=times.__getitem__, default="")
        if times[best] >= ALIKE:
            lines[best].append(patterns[best])
        else:
            lines[_literal(entry)] = []
    return spread("()", [_repeated(line, numbers) if numbers else line for line, numbers in lines.items()])


def _numbered(entry: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Each number that all of its paths have at the same place, and the entry with a name in the place of it."""
    parts = [path.split(".") for path in entry]
    for place, number in enumerate(parts[0]):
        if number.isdecimal() and all(path[place : place + 1] == [number] for path in parts) and "{" not in str(entry):
            yield _literal(tuple(".".join([*path[:place], "{i}", *path[place + 1 :]]) for path in parts)), int(number)


def _repeated(pattern: str, numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    whole = sorted(numbers) == list(range(first, last + 1))
    counted = f"range({f'{first}, ' if first else ''}{last + 1})" if whole else f"({', '.join(map(str, numbers))})"
    formatted = pattern.replace('("', '(f"').replace(', "', ', f"') if pattern[0] == "(" else f"f{pattern}"
    return f"*({formatted} for i in {counted})"


def _literal(entry: tuple[str, ...]) -> str:
    return json.dumps(entry[0]) if len(entry) == 1 else f"({', '.join(map(json.dumps, entry))})"


# **** optimizers ****


def settings_code(name: str, optimizer: Any, device: str, **flags: bool) -> str:
    """Rates in tensors, flags where its groups have them, and on a GPU counts of steps where the parameters are."""
    groups = optimizer.param_groups
    own = [f"{key}={value}" for key, value in flags.items() if all(key in group for group in groups)]
    lines = []
    if all("lr" in group for group in groups):
        lines.append(f'    group["lr"] = torch.tensor(float(group["lr"]), device={json.dumps(device)})')
    if own:
        lines.append(f"    group.update({', '.join(own)})")
    if lines:
        lines.insert(0, f"for group in {name}.param_groups:")
    if device.startswith("cuda"):
        lines += [
            f"for parameter, state in {name}.state.items():",
            f"    for key in state.keys() & {COUNTS!r}:",
            "        state[key] = state[key].to(parameter.device, torch.float32)",
        ]
    return "\n".join(lines)
