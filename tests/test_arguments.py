"""Wrong arguments of the command line are told before anything starts."""

import pytest

from proxy.__main__ import main


@pytest.mark.parametrize("wrong", [
    "serve --port 99999", "serve --port=-1", "serve --workers 0", "serve --workers=-1",
    "ext-proc --listen 127.0.0.1:99999", "ext-proc --to bad", "ext-proc --to http://",
])  # fmt: skip
def test_an_argument_out_of_range_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong.split())
    assert wrong.split()[1].partition("=")[0] in capsys.readouterr().err


def test_a_pattern_to_remove_needs_a_file_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--redact", "sk-.*"]) != 0
    assert "--save" in capsys.readouterr().err
