"""Add tools to the conversations of a scorer's data, to measure the effect of `filter_tools` on their cost.

Each trajectory gets other tools of the same data until it has `--count`, in an order drawn from its id. With
`--apart`, each becomes a source of its own, so that the report has its cost.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any


def padded(own: list[Any], others: list[Any], count: int, seed: str) -> list[Any]:
    """Return a request's tools and others with different names, `count` in all, in an order drawn from the seed."""
    names = {tool["function"]["name"] for tool in own}
    new = {tool["function"]["name"]: tool for tool in others if tool["function"]["name"] not in names}
    order = random.Random(seed)
    tools = [*own, *order.sample(sorted(new.values(), key=json.dumps), max(0, count - len(own)))]
    order.shuffle(tools)
    return tools


def main() -> None:
    """Write the trajectories below `--out`, as the scorer reads them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the scorer's data: tools/ and traj/")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the new data")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    others = list(json.loads((options.data / "tools" / "tools.defs.json").read_text()).values())
    folder = options.out / "traj"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((options.data / "traj").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row | {"tools": padded(row.get("tools") or [], others, options.count, row["id"])} for row in rows]
        for number, group in enumerate([[row] for row in rows] if options.apart else [rows]):
            name = f"{path.stem}-{number:02}" if options.apart else path.stem
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in group)
            (folder / f"{name}.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
