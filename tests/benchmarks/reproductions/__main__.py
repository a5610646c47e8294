"""``python -m tests.benchmarks.reproductions``: the papers' own claims, run again.

Prints tables, which docs/paper_planners.md sums up. The verdicts follow from conditions in the
code, so another machine and other data may give others.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType

from tests.benchmarks.reproductions import batchsampler, gcbs, minibatch, scns
from tests.benchmarks.reproductions.claims import QUICK, Effort, markdown

PAPERS: dict[str, ModuleType] = {
    "gcbs": gcbs,
    "batchsampler": batchsampler,
    "minibatch": minibatch,
    "scns": scns,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.reproductions", description=__doc__
    )
    parser.add_argument("--data", type=Path, default=Path("sample_data"), help="folder of pairs")
    parser.add_argument("--json", type=Path, help="also write what was measured here")
    parser.add_argument("--quick", action="store_true",
                        help="so little of each that verdicts mean nothing")  # fmt: skip
    parser.add_argument("papers", nargs="*", help=f"of {', '.join(PAPERS)}; default all")
    options = parser.parse_args()
    if unknown := set(options.papers) - set(PAPERS):
        parser.error(f"no paper {', '.join(sorted(unknown))}")
    effort = QUICK if options.quick else Effort()
    written = {}
    for name in options.papers or PAPERS:
        paper = PAPERS[name]
        print(f"{name} ...", file=sys.stderr, flush=True)  # minutes
        measured = paper.measure(options.data, effort)
        found = [claim.judge(measured) for claim in paper.CLAIMS]
        print(f"\n## {paper.TITLE}\n\n{markdown(paper.CLAIMS, found)}", flush=True)
        if paper is minibatch:
            print(f"\n{minibatch.details(measured)}", flush=True)
        written[name] = {
            "measured": measured,
            "claims": [
                {"where": claim.where, "says": claim.says, "ours": one.ours, "verdict": one.verdict}
                for claim, one in zip(paper.CLAIMS, found, strict=True)
            ],
        }
        if options.json:  # each time: all of it takes a while
            options.json.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
