"""The command line, `penstock`; `penstock --help` lists its commands."""

import argparse
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from proxy import __version__
from proxy.chat.errors import ConfigError, PenstockError

_CONFIG = "config.yaml"
_RUNS = {
    "serve": "proxy.server.serve:serve",
    "ext-proc": "proxy.server.ext_proc:serve_beside",
    "try": "proxy.server.replay.trial:try_session",
    "check": "proxy.server.commands:check_configuration",
    "explain": "proxy.server.explain:explain_file",
    "replay": "proxy.server.replay.run:replay_files",
    "referee": "proxy.server.replay.referee:referee_files",
    "show": "proxy.server.commands:show_ledger",
    "verify": "proxy.server.commands:verify_ledger",
    "models": "proxy.server.explain:list_models",
    "new": "proxy.config.keys_file:print_key",
    "schema": "proxy.server.reference:print_reference",
    "new-policy": "proxy.server.commands:write_policy",
}
"""The function of each command, which gets its options. Its module is loaded only when the command runs."""
_ANYWHERE = ("serve", "try")
"""The commands that take the configuration that comes with Penstock where none is here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code: 0, 1 for a wrong configuration or request, 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    try:
        if options.run in _ANYWHERE:
            options.config = _here_or_shipped(options.config)
        return int(pkgutil.resolve_name(_RUNS[options.run])(options) or 0)
    except (ConfigError, PenstockError) as error:
        for line in str(error).splitlines():
            print(f"penstock: {line}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"penstock: {error.filename or 'the address'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock", description="A transparent LLM proxy that engineers the context of each request."
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="run", required=True, metavar="COMMAND")

    serve = _command(commands, "serve", "start the proxy")
    serve.add_argument("--host", help="address to listen on (default: server.host of the configuration)")
    serve.add_argument("--port", type=_port, help="port to listen on; 0 takes a free one")
    serve.add_argument("--workers", type=_workers, default=1, help="processes to start (default: 1)")

    save = "save the requests with the text of prompts in a file, for `penstock replay`"
    serve.add_argument("--save", type=Path, metavar="FILE", help=save)
    redact = "remove all matches of this pattern from the saved file; may be repeated"
    serve.add_argument("--redact", action="append", default=[], metavar="PATTERN", help=redact)

    about = "run the chain of a running proxy beside an inference gateway, as a service of Envoy's ext_proc"
    beside = commands.add_parser("ext-proc", help=about, description=about[0].upper() + about[1:] + ".")
    beside.add_argument(
        "--listen", type=_address, default="127.0.0.1:9002", metavar="ADDRESS", help="default: 127.0.0.1:9002"
    )
    beside.add_argument(
        "--to", type=_url, default="http://127.0.0.1:4000", metavar="URL", help="the proxy (http://127.0.0.1:4000)"
    )
    beside.add_argument("--timeout", type=float, default=2.0, help="seconds for each body (2)")
    beside.add_argument("--max-mib", type=int, default=32, help="bodies larger than this pass unchanged (32)")
    beside.add_argument(
        "--closed", action="store_true", help="answer 503 where the chain does not run, as guards need it"
    )

    trial = _command(commands, "try", "record a session of yours, and say what the chain would have saved")
    trial.add_argument("--port", type=_port, help="port to listen on (default: server.port of the configuration)")
    trial.add_argument("--chain", help="run this chain instead of each model's own")
    trial.add_argument("--save", type=Path, metavar="FILE", help="keep the session, with the text of prompts")
    trial.add_argument("command", nargs="*", metavar="COMMAND", help="a client to run; without, wait for Ctrl-C")

    check = _command(commands, "check", "check the configuration; exit code 0 if it is valid, 1 if not")
    connect = "also connect to every upstream, Redis, Qdrant and the embedding server"
    check.add_argument("--connect", action="store_true", help=connect)

    explain = _command(commands, "explain", "show what the chain would do to a request, without sending it")
    explain.add_argument("request", help="a file with the JSON body of a request of any wire; - reads standard input")
    explain.add_argument("--chain", help="run this chain instead of the model's own")
    header = "a header of the request, such as the client's key; may be repeated"
    explain.add_argument("--header", action="append", default=[], type=_header, metavar="NAME:VALUE", help=header)
    explain.add_argument("--json", action="store_true", help="print JSON instead of a table")
    explain.add_argument("--body", action="store_true", help="print the body that would be sent, and nothing else")
    explain.add_argument(
        "--diff", action="store_true", help="also show the messages that were changed, added and removed"
    )
    explain.add_argument("--whole", action="store_true", help="with --diff, show these messages in full")
    explain.add_argument("--against", metavar="CHAIN", help="also show what this chain would do")
    wait = "load the embedding model first, as in a running proxy; without, texts are compared by words"
    explain.add_argument("--wait", action="store_true", help=wait)
    before = "a file with the earlier requests of the conversation, one JSON body a line"
    explain.add_argument("--before", type=Path, metavar="FILE", help=before)

    replay = _command(commands, "replay", "play conversations through a chain, and report its effects")
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE", help="conversations; docs/how-to/replay.md")
    replay.add_argument("--chain", help="run this chain instead of each model's own")
    replay.add_argument("--model", help="use this model instead of the one that a request names")
    replay.add_argument("--against", metavar="CHAIN", help="compare with this chain")
    replay.add_argument("--against-config", type=Path, metavar="FILE", help="compare with this configuration")
    replay.add_argument("--json", action="store_true", help="print the report as JSON")
    replay.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page of HTML")
    bound = "exit with 1 if this is true, such as 'cost > 1.0' or 'lost > 0'; may be repeated"
    replay.add_argument("--fail-if", action="append", default=[], metavar="BOUND", help=bound)

    about = "ask a real model in recorded conversations through two chains, and compare its decisions"
    referee = _command(commands, "referee", about)
    referee.add_argument("files", nargs="+", type=Path, metavar="FILE", help="conversations; docs/how-to/replay.md")
    referee.add_argument("--model", required=True, help="the model of the configuration that is asked")
    referee.add_argument("--chain", help="chain A (default: the model's own)")
    referee.add_argument("--against", metavar="CHAIN|URL", help="chain B, or the base URL of another proxy, as in SDKs")
    referee.add_argument("--against-config", type=Path, metavar="FILE", help="take chain B of this configuration")
    key = "a header of all requests, such as the provider's key; may be repeated"
    referee.add_argument("--header", action="append", default=[], type=_header, metavar="NAME:VALUE", help=key)
    referee.add_argument("--most", type=int, default=100, help="requests of the files to play, three times each (100)")
    referee.add_argument("--at-once", type=int, default=4, help="conversations to play at the same time (4)")
    referee.add_argument("--json", action="store_true", help="print the report as JSON")

    ledger = commands.add_parser("ledger", help="show what left conversations, and prove that no record was changed")
    ledger_commands = ledger.add_subparsers(dest="run", required=True, metavar="COMMAND")
    show = _command(ledger_commands, "show", "print the ledger of a conversation, or of all")
    show.add_argument("conversation", nargs="?", help="its id, as on the page")
    show.add_argument("--json", action="store_true", help="print JSON lines, for `penstock ledger verify`")
    verify = _command(ledger_commands, "verify", "check that no record was changed or removed")
    verify.add_argument("file", nargs="?", type=Path, help="check this file of `show --json`, not the present records")
    head = "a hash that `verify` printed before: all up to its entry must be there; may be repeated"
    verify.add_argument("--head", action="append", default=[], metavar="HASH", help=head)

    _command(commands, "models", "list the models of the configuration with their properties")

    keys = commands.add_parser("keys", help="make keys of Penstock", description="Make keys of Penstock.")
    key_commands = keys.add_subparsers(dest="run", required=True, metavar="COMMAND")
    new = key_commands.add_parser("new", help="print a new key, and its entry for the configuration")
    new.add_argument("name", nargs="?", type=_key_name, help="name of the key in the log (default: new)")
    new.add_argument("--name", dest="named", default="new", type=_key_name, metavar="NAME", help="the same")
    new.add_argument("--tenant", help="tenant of the key (default: its name)")
    new.add_argument("--file", type=Path, help="add the key to this file, which is created if it is missing")
    new.add_argument("--if-missing", action="store_true", help="do nothing if the file has a key of this name")

    schema = _command(commands, "schema", "print the JSON Schema of the configuration, or its reference")
    schema.add_argument("--markdown", action="store_true", help="print the reference in Markdown")

    policy = commands.add_parser("new-policy", help="write a policy of your own, and its test")
    policy.add_argument("name", help="its name in YAML: the dotted path of its module, such as my_company.redact_names")
    policy.add_argument("--package", action="store_true", help="write the package around it, too, with checks for CI")
    return parser


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def _address(text: str) -> str:
    if (port := text.rpartition(":")[2]).isdecimal():  # the path of a socket has none
        _port(port)
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError("a URL is needed, such as http://127.0.0.1:4000")
    return text


def _workers(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError("at least one worker is needed")
    return int(text)


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise argparse.ArgumentTypeError("a header is written NAME:VALUE")
    return name.strip().lower(), value.strip()


def _key_name(text: str) -> str:
    from proxy.config.settings import KEY_NAME

    if not re.fullmatch(KEY_NAME, text):
        raise argparse.ArgumentTypeError(
            "a name has at most 64 letters, digits and any of . _ @ -, a letter or digit first"
        )
    return text


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.add_argument("--config", type=Path, default=Path(_CONFIG), metavar="FILE", help=f"default: {_CONFIG}")
    return command


def _here_or_shipped(path: Path) -> Path:
    """Return the path, or the configuration that comes with Penstock if none is named and none is here."""
    if path != Path(_CONFIG) or path.exists():
        return path
    print(f"penstock: no {_CONFIG} is here; the one that comes with Penstock is used", flush=True)
    return Path(str(files("proxy") / "data" / _CONFIG))


if __name__ == "__main__":
    # a policy of the working directory may be named in the configuration by its dotted path
    sys.path.insert(0, os.getcwd())
    sys.exit(main())
