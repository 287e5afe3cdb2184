"""Hand-written attention, product, softmax, product, as one call of scaled_dot_product_attention."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gobrrr.diagnose.grouping import grouping
from gobrrr.timing.state import preserved
from gobrrr.treat.attention import attention_heard, made_one_call, masks_named
from gobrrr.treat.attention_gain import attention_forecast
from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import compiled, eager_after
from gobrrr.treat.edit import Edit
from gobrrr.treat.stillness import idle_optimizers
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.sdpa_switch import is_eager


@treatment(
    "sdpa-rewrite",
    "hand-written attention as scaled_dot_product_attention",
    stage=Stage.STRUCTURE,
    group="attention",
    by_hand="""
    from torch.nn.functional import scaled_dot_product_attention


    def attend(query, key, value, mask=None, dropout=0.0, scale=None):
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
        )


    # attend stands for softmax(query @ key.mT * scale + mask, -1) @ value;
    # a mask of bools says what is seen, and dropout is 0.0 in evaluation
    $places
    """,
    fills=lambda subject, sites: {"places": "\n".join(_places(subject, sites))},
)
class SdpaRewrite:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        """The modules that the products of attention ran in."""
        flow = chart.case.flow
        attentions = [] if flow is None else grouping(chart.ops, flow).attentions
        places = {chart.ops[one.output].module.partition(".")[2] for one in attentions}
        spelled = [name.partition(":") for name, _ in chart.subject.modules() if name.partition(":")[2] in places]
        if not spelled:
            raise Unfit("no module of it spells attention out")
        switched = {root for root, model in chart.subject.models.items() if is_eager(model)}
        found = tuple("".join(name) for name in spelled if name[0] not in switched)
        if not found:
            raise Unfit("its model has a switch for that, and then leaves out masks that say nothing")
        called = calling_attention(chart.subject)
        if not set(found) - called:
            raise Unfit("its attention is one call already, which no fused kernel takes")
        return tuple(name for name in found if name not in called)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        return attention_forecast(chart)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Traced by the compiler's front end, whose guards see to it that the trace holds, and run as it is."""
        backend = eager_after(made_one_call, masks_named)
        for site in sites:
            yield from compiled(subject.module(site), backend=backend)


def _places(subject: Subject, sites: tuple[str, ...]) -> Iterator[str]:
    """Where the program spells it out."""
    for kind in dict.fromkeys(type(subject.module(site)) for site in sites):
        code = inspect.unwrap(kind.forward).__code__
        yield f"# in {kind.__qualname__}.forward, {Path(code.co_filename).name}:{code.co_firstlineno}"


def calling_attention(subject: Subject) -> set[str]:
    """The modules that call scaled_dot_product_attention themselves, whatever torch makes of it, and torch's own, which
    nobody hears. Scripts are silent.
    """
    from torch.jit import ScriptModule
    from torch.nn import MultiheadAttention

    inside: list[str] = []
    found = {name for name, module in subject.modules() if isinstance(module, MultiheadAttention)}
    with ExitStack() as hooks:
        for name, module in subject.modules():
            if not isinstance(module, ScriptModule):
                enter, leave = partial(_enter, inside, name), partial(_leave, inside)
                hooks.callback(module.register_forward_pre_hook(enter).remove)
                hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
        with (
            subject.ended(),
            preserved(subject.origin),
            idle_optimizers(subject),
            attention_heard(lambda *_, **__: found.update(inside[-1:])),
        ):
            subject.run()
            return set(found)  # the hooks' own is put back too


def _enter(inside: list[str], name: str, *_: Any) -> None:
    inside.append(name)


def _leave(inside: list[str], *_: Any) -> None:
    inside.pop()
