"""The command line, `penstock`; `penstock --help` lists its commands."""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from proxy import __version__
from proxy.chat.errors import ConfigError, PenstockError
from proxy.config.load import Config, load

_CONFIG = "config.yaml"
_NEW_KEY = "# the new key, shown only once and stored nowhere:\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code: 0, 1 for a wrong configuration or request, 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
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

    serve = _command(commands, "serve", "start the proxy", _serve)
    serve.add_argument("--host", help="address to listen on (default: server.host of the configuration)")
    serve.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    serve.add_argument("--workers", type=int, default=1, help="processes to start (default: 1)")

    save = "save the requests with the text of prompts in a file, for `penstock replay`"
    serve.add_argument("--save", type=Path, metavar="FILE", help=save)
    redact = "remove all matches of this pattern from the saved file; may be repeated"
    serve.add_argument("--redact", action="append", default=[], metavar="PATTERN", help=redact)

    about = "run the chain of a running proxy beside an inference gateway, as a service of Envoy's ext_proc"
    beside = commands.add_parser("ext-proc", help=about, description=about[0].upper() + about[1:] + ".")
    beside.add_argument("--listen", default="127.0.0.1:9002", metavar="ADDRESS", help="default: 127.0.0.1:9002")
    beside.add_argument(
        "--to", default="http://127.0.0.1:4000", metavar="URL", help="the proxy (http://127.0.0.1:4000)"
    )
    beside.add_argument("--timeout", type=float, default=2.0, help="seconds for each body (2)")
    beside.add_argument("--max-mib", type=int, default=32, help="bodies larger than this pass unchanged (32)")
    beside.add_argument(
        "--closed", action="store_true", help="answer 503 where the chain does not run, as guards need it"
    )
    beside.set_defaults(run=_ext_proc)

    trial = _command(commands, "try", "record a session of yours, and say what the chain would have saved", _try)
    trial.add_argument("--port", type=int, help="port to listen on (default: server.port of the configuration)")
    trial.add_argument("--chain", help="run this chain instead of each model's own")
    trial.add_argument("--save", type=Path, metavar="FILE", help="keep the session, with the text of prompts")
    trial.add_argument("command", nargs="*", metavar="COMMAND", help="a client to run; without, wait for Ctrl-C")

    check = _command(commands, "check", "check the configuration; exit code 0 if it is valid, 1 if not", _check)
    connect = "also connect to every upstream, Redis, Qdrant and the embedding server"
    check.add_argument("--connect", action="store_true", help=connect)

    explain = _command(commands, "explain", "show what the chain would do to a request, without sending it", _explain)
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

    replay = _command(commands, "replay", "play conversations through a chain, and report its effects", _replay)
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
    referee = _command(commands, "referee", about, _referee)
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
    ledger_commands = ledger.add_subparsers(required=True, metavar="COMMAND")
    show = _command(ledger_commands, "show", "print the ledger of a conversation, or of all", _show_ledger)
    show.add_argument("conversation", nargs="?", help="its id, as on the page")
    show.add_argument("--json", action="store_true", help="print JSON lines, for `penstock ledger verify`")
    verify = _command(ledger_commands, "verify", "check that no record was changed or removed", _verify_ledger)
    verify.add_argument("file", nargs="?", type=Path, help="check this file of `show --json`, not the present records")
    head = "a hash that `verify` printed before: all up to its entry must be there; may be repeated"
    verify.add_argument("--head", action="append", default=[], metavar="HASH", help=head)

    _command(commands, "models", "list the models of the configuration with their properties", _models)

    keys = commands.add_parser("keys", help="make keys of Penstock", description="Make keys of Penstock.")
    key_commands = keys.add_subparsers(required=True, metavar="COMMAND")
    new = key_commands.add_parser("new", help="print a new key, and its entry for the configuration")
    new.add_argument("name", nargs="?", type=_key_name, help="name of the key in the log (default: new)")
    new.add_argument("--name", dest="named", default="new", type=_key_name, metavar="NAME", help="the same")
    new.add_argument("--tenant", help="tenant of the key (default: its name)")
    new.add_argument("--file", type=Path, help="add the key to this file, which is created if it is missing")
    new.add_argument("--if-missing", action="store_true", help="do nothing if the file has a key of this name")
    new.set_defaults(run=_new_key)

    schema = _command(commands, "schema", "print the JSON Schema of the configuration, or its reference", _schema)
    schema.add_argument("--markdown", action="store_true", help="print the reference in Markdown")

    policy = commands.add_parser("new-policy", help="write a policy of your own, and its test")
    policy.add_argument("name", help="its name in YAML: the dotted path of its module, such as my_company.redact_names")
    policy.add_argument("--package", action="store_true", help="write the package around it, too, with checks for CI")
    policy.set_defaults(run=_new_policy)
    return parser


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise argparse.ArgumentTypeError("a header is written NAME:VALUE")
    return name.strip().lower(), value.strip()


def _key_name(text: str) -> str:
    from proxy.config.access_settings import KEY_NAME

    if not re.fullmatch(KEY_NAME, text):
        raise argparse.ArgumentTypeError(
            "a name has at most 64 letters, digits and any of . _ @ -, a letter or digit first"
        )
    return text


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, run: object
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.add_argument("--config", type=Path, default=Path(_CONFIG), metavar="FILE", help=f"default: {_CONFIG}")
    command.set_defaults(run=run)
    return command


def _here_or_shipped(path: Path) -> Path:
    """Return the path, or the configuration that comes with Penstock if none is named and none is here."""
    if path != Path(_CONFIG) or path.exists():
        return path
    print(f"penstock: no {_CONFIG} is here; the one that comes with Penstock is used", flush=True)
    return Path(str(files("proxy") / "data" / _CONFIG))


def _serve(options: argparse.Namespace) -> int:
    from proxy.server.serve import serve

    config = load(_here_or_shipped(options.config))
    listen = {"host": options.host, "port": options.port, "workers": options.workers}
    return serve(config, **listen, save=options.save, redact=options.redact)


def _ext_proc(options: argparse.Namespace) -> int:
    from proxy.config.settings import TelemetrySettings
    from proxy.server.ext_proc import MIB, serve
    from proxy.telemetry.logs import configure

    configure(TelemetrySettings())
    limits = {"patience": options.timeout, "limit": options.max_mib * MIB, "closed": options.closed}
    asyncio.run(
        serve(
            options.listen,
            options.to,
            **limits,
            started=lambda port: print(f"penstock: ext_proc on port {port}, for {options.to}", flush=True),
        )
    )
    return 0


def _try(options: argparse.Namespace) -> int:
    from proxy.server.replay.trial import try_session

    options.config = _here_or_shipped(options.config)
    return try_session(options)


def _check(options: argparse.Namespace) -> int:
    config = load(options.config)
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{config.path}: good ({_summary(config)}; version {config.version})")
    return 0 if not options.connect or asyncio.run(_connect(config)) else 1


async def _connect(config: Config) -> bool:
    """Print the answer of each server, and return whether all are reachable."""
    from proxy.server.connections import connect

    are_there = True
    async for answered in connect(config):
        print(answered, file=sys.stdout if answered.is_there else sys.stderr, flush=True)
        are_there &= answered.is_there
    return are_there


def _summary(config: Config) -> str:
    settings = config.settings
    chains = ", ".join(f"{name} {len(steps)}" for name, steps in settings.chains.items())
    return f"upstreams: {len(settings.upstreams)}; model entries: {len(settings.models)}; steps per chain: {chains}"


def _explain(options: argparse.Namespace) -> int:
    from proxy.server.explain import briefly, explain, not_compared, render_json, render_table, whole

    raw = sys.stdin.buffer.read() if options.request == "-" else Path(options.request).read_bytes()
    lines = [] if options.before is None else options.before.read_bytes().splitlines()
    config, headers, before = load(options.config), dict(options.header), [line for line in lines if line.strip()]
    chains = [options.chain, *([options.against] if options.against else [])]
    explained = [
        asyncio.run(explain(config, raw, chain_name=chain, headers=headers, before=before, waits=options.wait))
        for chain in chains
    ]
    if options.body:
        for line in not_compared(explained[0]):
            print(f"penstock: {line}", file=sys.stderr)
        sys.stdout.buffer.write(explained[0].body or b"")
        return 0 if explained[0].body is not None else 1
    tell = whole if options.whole else briefly if options.diff else None
    if options.json:
        print(render_json(*explained, tell=tell))
    else:
        print(("\n\n" + "-" * 80 + "\n\n").join(render_table(each, tell) for each in explained))
    return 0


def _replay(options: argparse.Namespace) -> int:
    from proxy.server.replay.run import replay_files

    return replay_files(options)


def _referee(options: argparse.Namespace) -> int:
    from proxy.server.replay.referee import referee_files

    return referee_files(options)


def _show_ledger(options: argparse.Namespace) -> int:
    from proxy.server.ledger import show_ledger

    return show_ledger(options)


def _verify_ledger(options: argparse.Namespace) -> int:
    from proxy.server.ledger import verify_ledger

    return verify_ledger(options)


def _models(options: argparse.Namespace) -> int:
    from proxy.server.explain import render_models

    print(render_models(load(options.config)))
    return 0


def _new_key(options: argparse.Namespace) -> int:
    from proxy.config.keys_file import add_entry, entry_of, new_key

    name = options.name or options.named
    key = new_key()
    entry = entry_of(name, key, options.tenant)
    if options.file is None:
        if options.if_missing:
            raise ConfigError("--if-missing needs --file")
        print(f"{_NEW_KEY}{key}\n# its entry, for auth.keys or a file of keys:\n{entry}")
    elif add_entry(options.file, name, entry, if_missing=options.if_missing):
        print(f"{_NEW_KEY}{key}\n# added to {options.file} as {name!r}")
    else:
        print(f"# {options.file} already has a key named {name!r}: nothing to do")
    return 0


def _new_policy(options: argparse.Namespace) -> int:
    *folders, last = options.name.split(".")
    here = not folders and Path("tests/policies").is_dir()  # in a checkout of Penstock
    if not re.fullmatch(r"([a-z][a-z0-9_]*\.)*[a-z][a-z0-9_]*", options.name) or not (folders or here):
        raise ConfigError(f"{options.name!r} is not a valid policy name; write it like my_company.redact_names")
    module = f"policies.{last}" if here else options.name
    folder = Path(*module.split(".")[:-1])
    names = {
        "name": options.name,
        "module": module,
        "class": "".join(part.capitalize() for part in last.split("_")),
        "top": module.partition(".")[0],
        "project": options.name.replace(".", "-").replace("_", "-"),
    }
    paths = {"policy": folder / f"{last}.py", "test": ("tests" if here else ".") / folder / f"test_{last}.py"}
    if options.package:
        paths |= {
            "pyproject": Path("pyproject.toml"),
            "config": Path("config.yaml"),
            "conversations": Path("conversations.jsonl"),
            "workflow": Path(".github/workflows/checks.yml"),
        }
    for path in paths.values():
        if path.exists():
            raise ConfigError(f"{path} exists already")
    for template, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = files("proxy").joinpath(f"data/new_policy/{template}.txt").read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(names), encoding="utf-8")
    print(f"created {', '.join(map(str, paths.values()))}; run the test: python -m pytest {paths['test']}")
    print(f"add it to a chain of the configuration: - {options.name}: {{}}")
    return 0


def _schema(options: argparse.Namespace) -> int:
    from proxy.server.reference import config_markdown, config_schema

    print(config_markdown() if options.markdown else config_schema(), end="")
    return 0


if __name__ == "__main__":
    # a policy of the working directory may be named in the configuration by its dotted path
    sys.path.insert(0, os.getcwd())
    sys.exit(main())
