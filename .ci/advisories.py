"""The advisories of a database on this machine that concern what constraints.txt pins. `make advisories` runs it.

The database is the package safety-db: no network, but as old as it says. Exit code 1 if there is an advisory.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet


def pins(text: str) -> dict[str, str]:
    """Versions by name."""
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


def normal(name: str) -> str:
    """Return a name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def concerning(versions: Mapping[str, str], database: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each advisory about a version."""
    for name, advisories in database.items():
        version = versions.get(normal(name))
        for each in advisories if version else ():
            if any(SpecifierSet(spec).contains(version, prereleases=True) for spec in each["specs"]):
                yield f"{name} {version}: {each['cve'] or each['id']}: {' '.join(each['advisory'].split())}"


def main() -> int:
    """Print them, and how much can be known from this database."""
    path = distribution("safety-db").locate_file("safety_db/insecure_full.json")
    database = json.loads(Path(str(path)).read_text())
    made = datetime.fromtimestamp(database.pop("$meta")["timestamp"], UTC)
    versions = pins(Path("constraints.txt").read_text())
    found = sorted(concerning(versions, database))
    known = versions.keys() & {normal(name) for name in database}
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} advisories for {len(versions)} pinned packages, in a database of {made:%Y-%m-%d}.")
    print(f"It has advisories on {len(known)} of these packages at all, and none that is younger than it is.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
