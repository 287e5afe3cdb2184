import inspect
import json.decoder
import re

import pytest

from gobrrr import errors
from gobrrr.errors import GobrrrError, Missing
from gobrrr.extras import need

# docs of the commands: "Exit codes: 0 fine, 1 the answer is no (regression, budget exceeded), 2 usage, …"
EXIT_CODES = {
    "AnswerIsNo": 1,
    "UsageError": 2,
    "CannotDecide": 3,
    "BadInput": 4,
    "ProgramFailed": 5,
    "Missing": 6,
    "Interrupted": 130,
}
TREE = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, GobrrrError) and kind is not GobrrrError
}


def test_every_error_has_the_exit_code_that_the_command_line_promises():
    assert {name: kind.exit_code for name, kind in TREE.items()} == EXIT_CODES


def test_no_two_errors_share_an_exit_code_and_none_looks_like_success():
    codes = [kind.exit_code for kind in TREE.values()]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes


def test_the_picture_in_the_docstring_names_every_error_with_its_code():
    drawn = re.findall(r"[├└]── (\w+) +(\d+)   \S", errors.__doc__)
    assert {name: int(code) for name, code in drawn} == {name: kind.exit_code for name, kind in TREE.items()}


def test_an_extra_that_is_there_is_returned():
    assert need("json.decoder", "html") is json.decoder


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part"])
def test_a_missing_extra_is_one_sentence_that_says_what_to_install(module):
    with pytest.raises(Missing, match=rf"^{module} is needed .*: pip install 'gobrrr\[html\]'$"):
        need(module, "html")


def test_an_extra_that_is_there_but_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import what_it_needs_itself")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs_itself"):
        need("broken_extra", "html")
