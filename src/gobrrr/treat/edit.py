"""An Edit: one reversible change of one place. It holds the value that is not there now, and swaps the two.

Whatever a treatment does is a sequence of edits, so that undoing it is the same sequence backwards, and switching
between treated and untreated costs nothing: what was compiled or captured stays ready in the edit's hand.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.undo import interrupts_deferred, put_all_back

if TYPE_CHECKING:
    import torch

ABSENT = object()
"""Stands for no value where None is one."""


class Edit:
    """Swapped an odd number of times it is in force; a swap that fails is none."""

    __slots__ = ("_read", "_value", "_write", "on")

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> None:
        self._read, self._write, self._value = read, write, value
        self.on = False

    def swap(self) -> None:
        there = self._read()
        self._write(self._value)
        self._value, self.on = there, not self.on


def attribute(owner: object, name: str, value: Any) -> Edit:
    """Of the object itself: what its class offers under that name is no value of its own."""

    def read() -> Any:
        if name in vars(owner):
            return vars(owner)[name]
        return ABSENT if hasattr(type(owner), name) or not hasattr(owner, name) else getattr(owner, name)

    def write(new: Any) -> None:
        if new is ABSENT:
            delattr(owner, name)
        elif hasattr(type(owner), name):
            vars(owner)[name] = new  # a traced module would hand it on to the script inside of it
        else:
            setattr(owner, name, new)

    return Edit(read, write, value)


def item(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> Edit:
    def write(new: Any) -> None:
        if new is ABSENT:
            del mapping[key]
        else:
            mapping[key] = new

    return Edit(lambda: mapping.get(key, ABSENT), write, value)


def flag(optimizer: Any, place: int, key: str, *, value: Any) -> Edit:
    """Of a group of parameters, which is another mapping once the optimizer has loaded something."""

    def write(new: Any) -> None:
        item(optimizer.param_groups[place], key, new).swap()

    return Edit(lambda: optimizer.param_groups[place].get(key, ABSENT), write, value)


def number(mapping: MutableMapping[Any, Any], key: Any, tensor: "torch.Tensor") -> Edit:
    """In another tensor: whoever is put there takes over what the other has become."""

    def write(new: "torch.Tensor") -> None:
        mapping[key] = new.fill_(float(mapping[key]))

    return Edit(lambda: mapping[key], write, tensor)


def data(tensor: "torch.Tensor", other: "torch.Tensor") -> Edit:
    """Where a tensor's numbers lie: in another layout or type, with the same values."""

    def write(new: "torch.Tensor") -> None:
        new.copy_(tensor.data)
        tensor.data = new

    return Edit(lambda: tensor.data, write, other)


def strided(tensors: "Callable[[], list[torch.Tensor]]", stride: tuple[int, ...]) -> Edit:
    """The layout of tensors of one shape, the first of which stays and the others may come and go. Each keeps both of
    its places while it lives: what has captured one finds it again.
    """
    from torch.utils.weak import WeakTensorKeyDictionary

    places: Any = WeakTensorKeyDictionary()

    def place(tensor: "torch.Tensor", new: tuple[int, ...]) -> "torch.Tensor":
        known: torch.Tensor | None = places.get(tensor)
        wanted = tensor.dtype, tensor.device, new
        if known is None or (known.dtype, known.device, known.stride()) != wanted:  # cast, moved or loaded meanwhile
            known = tensor.new_empty_strided(tensor.shape, new)
        return known.copy_(tensor.data)

    def write(new: tuple[int, ...]) -> None:
        moved = {id(tensor): (tensor, place(tensor, new)) for tensor in tensors()}
        for tensor, other in moved.values():
            places[tensor] = tensor.data
            tensor.data = other

    first = tensors()[0]
    return Edit(lambda: first.stride(), write, stride)  # noqa: PLW0108 (its data are another's by then)


def after_loading(optimizer: Any, hook: Callable[[Any], None]) -> Edit:
    """What an optimizer loads is as it was saved: in other layouts, with other flags."""
    return hooked(lambda: optimizer.register_load_state_dict_post_hook(hook))


def when_saved(optimizer: Any, hook: Callable[[Any, dict[str, Any]], None]) -> Edit:
    """What an optimizer gives out to be saved, changed: tensors and mappings in it are its own, and to be replaced. Of
    several hooks the first one comes last, for it knows what was there before all others.
    """
    return hooked(lambda: optimizer.register_state_dict_post_hook(hook, prepend=True))


def hooked(register: Callable[[], Any]) -> Edit:
    """A hook, there while the edit is in force; registering gives the handle that removes it."""
    handles: list[Any] = []

    def write(wanted: bool) -> None:  # noqa: FBT001 (the value of the edit)
        if wanted:
            handles.append(register())
        else:
            handles.pop().remove()

    return Edit(lambda: bool(handles), write, value=True)


def shared(owner: object, name: str, value: Any) -> Edit:
    """An attribute of what the whole process shares: there as long as anybody wants it, in whichever order they end."""
    return held_by_all((id(owner), name), lambda: attribute(owner, name, value))


def held_by_all(key: object, made: Callable[[], Edit]) -> Edit:
    """An edit of what the whole process shares, known by this key: in force from the first who wants it to the last."""
    wanted = [False]

    def write(wants: bool) -> None:  # noqa: FBT001 (the value of the edit)
        edit, holders = _SHARED.get(key) or (made(), 0)
        left = holders + (1 if wants else -1)
        if not holders or not left:
            edit.swap()
        if left:
            _SHARED[key] = edit, left
        else:
            del _SHARED[key]
        wanted[0] = wants

    return Edit(lambda: wanted[0], write, value=True)


_SHARED: dict[object, tuple[Edit, int]] = {}


def gradient(parameter: "torch.Tensor", other: "torch.Tensor | None") -> Edit:
    return rebinding(lambda: parameter.grad, lambda new: setattr(parameter, "grad", new), other)


def rebinding(find: Callable[[], Any], bind: Callable[[Any], object], value: Any) -> Edit:
    """Of a name that steps give to other things: off, it means what it meant at first, not what the last one left."""
    meant = [find()]

    def write(new: Any) -> None:
        bind(new)
        meant[0] = new

    return Edit(lambda: meant[0], write, value)


def swap_on(edits: Iterable[Edit]) -> list[Edit]:
    """Each as it comes, so that what makes the next one sees it in force; none of them if one fails."""
    done: list[Edit] = []
    try:
        for edit in edits:
            with interrupts_deferred():
                edit.swap()
                done.append(edit)
    except BaseException:
        swap_off(done)
        raise
    return done


def swap_off(edits: Sequence[Edit]) -> None:
    """The last one first, and all of them whatever one raises: that one stays on, and may be tried again."""
    put_all_back([edit.swap for edit in reversed(edits) if edit.on])


@contextmanager
def in_force(edits: Iterable[Edit]) -> Iterator[None]:
    done = swap_on(edits)
    try:
        yield
    finally:
        swap_off(done)
