"""Wrong arguments of the command line are told before anything starts."""

import pytest

from proxy.__main__ import main


@pytest.mark.parametrize("wrong", [("--port", "99999"), ("--port=-1",), ("--workers", "0"), ("--workers=-1",)])
def test_a_number_out_of_range_is_refused(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", *wrong])
    assert wrong[0].partition("=")[0] in capsys.readouterr().err
