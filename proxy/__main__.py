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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code: 0, 1 for a wrong configuration or request, 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    try:
        return int(pkgutil.resolve_name(f"proxy.{options.run}")(options) or 0)
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
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = _command(commands, "serve", "server.serve:serve", "start the proxy", shipped=True)
    serve.add_argument("--host", help="address to listen on (default: server.host of the configuration)")
    serve.add_argument("--port", type=_port, help="port to listen on; 0 takes a free one")
    serve.add_argument("--workers", type=_count, default=1, help="processes to start (default: 1)")
    save = "save the requests with the text of prompts in a file, for `penstock replay`"
    serve.add_argument("--save", type=Path, metavar="FILE", help=save)
    redact = "remove all matches of this pattern from the saved file; may be repeated"
    serve.add_argument("--redact", action="append", default=[], metavar="PATTERN", help=redact)

    about = "run the chain of a running proxy beside an inference gateway, as a service of Envoy's ext_proc"
    beside = _command(commands, "ext-proc", "server.ext_proc:serve_beside", about, config=False)
    listen, to = "127.0.0.1:9002", "http://127.0.0.1:4000"
    beside.add_argument("--listen", type=_address, default=listen, metavar="ADDRESS", help=f"default: {listen}")
    beside.add_argument("--to", type=_url, default=to, metavar="URL", help=f"the proxy ({to})")
    beside.add_argument("--timeout", type=_seconds, default=2.0, help="seconds for each body (2)")
    beside.add_argument("--max-mib", type=_count, default=32, help="bodies larger than this pass unchanged (32)")
    closed = "answer 503 where the chain does not run, as guards need it"
    beside.add_argument("--closed", action="store_true", help=closed)

    about = "record a session of yours, and say what the chain would have saved"
    trial = _command(commands, "try", "server.replay.trial:try_session", about, shipped=True)
    trial.add_argument("--port", type=_port, help="port to listen on (default: server.port of the configuration)")
    trial.add_argument("--chain", help="run this chain instead of each model's own")
    trial.add_argument("--save", type=Path, metavar="FILE", help="keep the session, with the text of prompts")
    trial.add_argument("command", nargs="*", metavar="COMMAND", help="a client to run; without, wait for Ctrl-C")

    about = "check the configuration; exit code 0 if it is valid, 1 if not"
    check = _command(commands, "check", "server.commands:check_configuration", about)
    connect = "also connect to every upstream, Redis, Qdrant and the embedding server"
    check.add_argument("--connect", action="store_true", help=connect)

    about = "show what the chain would do to a request, without sending it"
    explain = _command(commands, "explain", "server.explain:explain_file", about)
    explain.add_argument("request", help="a file with the JSON body of a request of any wire; - reads standard input")
    explain.add_argument("--chain", help="run this chain instead of the model's own")
    header = "a header of the request, such as the client's key; may be repeated"
    explain.add_argument("--header", action="append", default=[], type=_header, metavar="NAME:VALUE", help=header)
    explain.add_argument("--json", action="store_true", help="print JSON instead of a table")
    explain.add_argument("--body", action="store_true", help="print the body that would be sent, and nothing else")
    diff = "also show the messages that were changed, added and removed"
    explain.add_argument("--diff", action="store_true", help=diff)
    explain.add_argument("--whole", action="store_true", help="with --diff, show these messages in full")
    explain.add_argument("--against", metavar="CHAIN", help="also show what this chain would do")
    wait = "load the embedding model first, as in a running proxy; without, texts are compared by words"
    explain.add_argument("--wait", action="store_true", help=wait)
    before = "a file with the earlier requests of the conversation, one JSON body a line"
    explain.add_argument("--before", type=Path, metavar="FILE", help=before)

    about = "play conversations through a chain, and report its effects"
    replay = _command(commands, "replay", "server.replay.run:replay_files", about)
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
    referee = _command(commands, "referee", "server.replay.referee:referee_files", about)
    referee.add_argument("files", nargs="+", type=Path, metavar="FILE", help="conversations; docs/how-to/replay.md")
    referee.add_argument("--model", required=True, help="the model of the configuration that is asked")
    referee.add_argument("--chain", help="chain A (default: the model's own)")
    referee.add_argument("--against", metavar="CHAIN|URL", help="chain B, or the base URL of another proxy, as in SDKs")
    referee.add_argument("--against-config", type=Path, metavar="FILE", help="take chain B of this configuration")
    key = "a header of all requests, such as the provider's key; may be repeated"
    referee.add_argument("--header", action="append", default=[], type=_header, metavar="NAME:VALUE", help=key)
    referee.add_argument(
        "--most", type=_count, default=100, help="requests of the files to play, three times each (100)"
    )
    referee.add_argument("--at-once", type=_count, default=4, help="conversations to play at the same time (4)")
    referee.add_argument("--json", action="store_true", help="print the report as JSON")

    ledger = commands.add_parser("ledger", help="show what left conversations, and prove that no record was changed")
    of_ledger = ledger.add_subparsers(required=True, metavar="COMMAND")
    about = "print the ledger of a conversation, or of all"
    show = _command(of_ledger, "show", "server.commands:show_ledger", about)
    show.add_argument("conversation", nargs="?", help="its id, as on the page")
    show.add_argument("--json", action="store_true", help="print JSON lines, for `penstock ledger verify`")
    about = "check that no record was changed or removed"
    verify = _command(of_ledger, "verify", "server.commands:verify_ledger", about)
    verify.add_argument("file", nargs="?", type=Path, help="check this file of `show --json`, not the present records")
    head = "a hash that `verify` printed before: all up to its entry must be there; may be repeated"
    verify.add_argument("--head", action="append", default=[], metavar="HASH", help=head)

    about = "list the models of the configuration with their properties"
    _command(commands, "models", "server.explain:list_models", about)

    keys = commands.add_parser("keys", help="make keys of Penstock", description="Make keys of Penstock.")
    of_keys = keys.add_subparsers(required=True, metavar="COMMAND")
    about = "print a new key, and its entry for the configuration"
    new = _command(of_keys, "new", "config.keys_file:print_key", about, config=False)
    new.add_argument("name", nargs="?", default="new", type=_key_name, help="name of the key in the log (default: new)")
    new.add_argument("--tenant", type=_tenant, help="tenant of the key (default: its name)")
    new.add_argument("--file", type=Path, help="add the key to this file, which is created if it is missing")
    new.add_argument("--if-missing", action="store_true", help="do nothing if the file has a key of this name")

    about = "print the JSON Schema of the configuration, or its reference"
    schema = _command(commands, "schema", "server.reference:print_reference", about)
    schema.add_argument("--markdown", action="store_true", help="print the reference in Markdown")

    about = "write a policy of your own, and its test"
    policy = _command(commands, "new-policy", "server.commands:write_policy", about, config=False)
    policy.add_argument("name", help="its name in YAML: the dotted path of its module, such as my_company.redact_names")
    policy.add_argument("--package", action="store_true", help="write the package around it, too, with checks for CI")
    return parser


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if host != "unix":  # a socket's path has no port
        if not (host and port.isdecimal()):
            raise argparse.ArgumentTypeError("an address is written HOST:PORT, or unix:PATH")
        _port(port)
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError("a URL is needed, such as http://127.0.0.1:4000")
    return text


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError("a whole number from 1 on is needed")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or not float(text):
        raise argparse.ArgumentTypeError("a number of seconds above 0 is needed")
    return float(text)


def _tenant(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a tenant has a name; leave it out for the key's own")
    return text


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
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: str,
    text: str,
    *,
    config: bool = True,
    shipped: bool = False,
) -> argparse.ArgumentParser:
    """Add the command that calls the function `run`, whose module is loaded only then.

    Where `shipped`, it takes the configuration that comes with Penstock if none is named and none is here.
    """
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(run=run)
    if config:
        find = _here_or_shipped if shipped else Path
        command.add_argument("--config", type=find, default=_CONFIG, metavar="FILE", help=f"default: {_CONFIG}")
    return command


def _here_or_shipped(path: str) -> Path:
    if path != _CONFIG or os.path.exists(path):
        return Path(path)
    print(f"penstock: no {_CONFIG} is here; the one that comes with Penstock is used", flush=True)
    return Path(str(files("proxy") / "data" / _CONFIG))


if __name__ == "__main__":
    # a policy of the working directory may be named in the configuration by its dotted path
    sys.path.insert(0, os.getcwd())
    sys.exit(main())
