"""Measurements that pages tell without showing a command, made again in plain NumPy."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

import batchplan
from batchplan.planners import PLANNERS as NAMES
from tests.benchmarks.finetune import table
from tests.benchmarks.law import known, trainings
from tests.benchmarks.law import table as law
from tests.dense import similarities

from . import tables
from .blocks import ROOT

TUTORIAL, PLANNERS, COMPARISON, FORMATS, LAW, GUARDS, TRAINING = (
    (ROOT / "docs" / f"{name}.md").read_text()
    for name in ("tutorial", "paper_planners", "comparison", "formats", "law", "guards", "training")
)
README = (ROOT / "README.md").read_text()
TEMPERATURE = 0.05


@pytest.fixture(scope="module")
def embeddings():
    return batchplan.load_embeddings(ROOT / "sample_data" / "pairs.parquet")


@pytest.fixture(scope="module")
def logits(embeddings):
    return similarities(embeddings) / TEMPERATURE


def loss(logits, rows, batch_size):
    """The NT-Xent loss of batches cut from ``rows``, the mean of both directions."""
    blocks = np.stack([logits[np.ix_(b, b)] for b in rows.reshape(-1, batch_size)])
    positive = np.diagonal(blocks, axis1=1, axis2=2)
    return float((logsumexp(blocks, 2) / 2 + logsumexp(blocks, 1) / 2 - positive).mean())


@pytest.fixture(scope="module")
def baseline(logits):
    """By batch size: the mean loss of random batches, and the loss against all rows."""
    generator = np.random.default_rng(0)
    everything = loss(logits, np.arange(len(logits)), len(logits))

    @cache
    def of(batch_size):
        orders = (generator.permutation(len(logits)) for _ in range(8))
        return float(np.mean([loss(logits, rows, batch_size) for rows in orders])), everything

    return of


def gap_reduction(logits, baseline, rows, batch_size):
    """The share of the gap of random batches that the plan closes, in percent."""
    random, everything = baseline(batch_size)
    return 100 * (loss(logits, rows, batch_size) - random) / (everything - random)


def test_gap_reduction_by_neighbors(embeddings, logits, baseline):
    numbers, told = re.search(r"`--neighbors` ([\d, ]+): ([\d.%, ]+)\.\n", PLANNERS).groups()
    settings = list(zip(numbers.split(", "), told.replace("%", "").split(", "), strict=True))
    assert len(settings) == 5
    for neighbors, told in settings:
        rows = batchplan.plan(
            embeddings, planner="gcbs", neighbors=int(neighbors), device="cpu"
        ).rows
        assert gap_reduction(logits, baseline, rows, 64) == pytest.approx(float(told), abs=0.3), (
            neighbors
        )


def test_gap_reduction_by_batch_size(embeddings, logits, baseline):
    number = r"([\d.]+)%"
    told = re.search(
        rf"{number} with B = 64, {number} with B = 16, {number} with B = 256", PLANNERS
    )
    for batch_size, percent in zip((64, 16, 256), told.groups(), strict=True):
        rows = batchplan.plan(embeddings, planner="gcbs", batch_size=batch_size, device="cpu").rows
        assert gap_reduction(logits, baseline, rows, batch_size) == pytest.approx(
            float(percent), abs=0.3
        )


def test_losses(baseline):
    told = re.search(
        r"random batches of 64 is ([\d.]+);.*?all 2,048 rows is ([\d.]+);.*?gap.*?is ([\d.]+\d)",
        TUTORIAL,
        re.DOTALL,
    )
    random, everything = baseline(64)
    found = (random, everything, everything - random)
    assert found == pytest.approx([float(part) for part in told.groups()], abs=0.01)


@pytest.fixture(scope="module")
def results():
    """Of two lines of the training runs, in two epochs: the scores of each seed and dtype that both
    have, for each domain."""
    found = table.runs()

    def of(line, base, epochs=2):
        return [
            np.array([[ours[seed], theirs[seed]] for seed in sorted(ours.keys() & theirs.keys())])
            for domain in table.DOMAINS
            for ours, theirs in [[scores(domain, name, epochs) for name in (line, base)]]
        ]

    def scores(domain, line, epochs):
        runs = table.final(found, domain, line, epochs)
        return {table.pair(run): run["test"][-1]["ndcg@10"] for run in runs}

    return of


def gains(pairs):
    """The mean difference in each domain, and half of its interval."""
    return [table.interval([a - b for a, b in own]) for own in pairs]


def numbers(text):
    return [float(number.replace("\N{MINUS SIGN}", "-")) for number in re.findall(NUMBER, text)]


NUMBER = r"[+\N{MINUS SIGN}]?\d+\.\d+"


def test_the_readme_states_the_training_runs(results):
    planned = results("planned-later", "shuffled")
    told = re.search(rf"reaches ({NUMBER}) .* planned batches and ({NUMBER}) with random", README)
    assert [float(one) for one in told.groups()] == [round(one, 1) for one in planned[0].mean(0)]
    rows = dict(re.findall(r"^\| (\w+ epochs?, .*?) \|(.*)$", README, re.MULTILINE))
    usual, stronger = ["planned-later"] * 3, ["planned-hardness-4"] * 3
    single = ["half-hardness-4", "half-hardness", "half-hardness-4"]
    shown = {
        "two epochs, planned": (usual, 2),
        "two epochs, `hardness_mode`": (["hardness"] * 3, 2),
        "two epochs, planned, `hardness_mode`": (stronger, 2),
        "one epoch, `hardness_mode`": (["hardness"] * 3, 1),
        "one epoch, planned, `hardness_mode`": (single, 1),
    }
    assert rows.keys() == shown.keys()
    counts = set()

    def over(lines, base, epochs):
        """The figures of a line for each domain, over another line."""
        pairs = [results(line, base, epochs)[place] for place, line in enumerate(lines)]
        counts.update(map(len, pairs))
        return [round(one, 1) for pair in gains(pairs) for one in pair]

    for name, (lines, epochs) in shown.items():
        assert numbers(rows[name]) == over(lines, "shuffled", epochs), name
    said = numbers(re.search(r"^`hardness_mode` of .*$", README, re.MULTILINE)[0])
    assert said[:6] == over(stronger, "hardness", 2)
    assert said[6:12] == over(single, "hardness", 1)
    assert said[12:] == over(usual, "cached-1024", 2)
    assert (min(counts), max(counts)) == (3, 8)
    assert "over three to eight seeds" in README
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    assert len(prose.split()) < 900


def test_the_comparison_states_the_training_runs(results):
    for name, line in (
        ("`NO_DUPLICATES` of sentence-transformers", "no-duplicates"),
        ("`hardness_mode` of sentence-transformers", "hardness"),
        ("`mine_hard_negatives` of sentence-transformers", "mined"),
        ("**Planned batches**", "planned-later"),
        ("planned, with `hardness_mode` of strength 4", "planned-hardness-4"),
    ):
        row = re.search(rf"^\| {re.escape(name)} \|(.*)$", COMPARISON, re.MULTILINE)[1]
        told = numbers(row.split("|")[2])
        assert told == [round(mean, 2) for mean, _ in gains(results(line, "shuffled"))], name


def test_the_tables_are_those_of_the_runs():
    for name, own in tables.tables(table.runs(), law.Grid()).items():
        page = (ROOT / "docs" / name).read_text()
        assert tables.filled(page, own) == page
        with pytest.raises(ValueError, match="one table"):
            tables.filled(page, [*own, own[0]])


def test_the_page_of_the_law_states_its_runs():
    grid = law.Grid()
    found = trainings.trainings(grid, table.runs())
    told = re.search(
        rf"misses the gain by ({NUMBER}) points on average, where the mean of all other data sets "
        rf"misses it by ({NUMBER}); (\d+)% of the gains",
        LAW,
    )
    own, plain, within = trainings.errors(found)
    assert told.groups() == (f"{own:.2f}", f"{plain:.2f}", f"{100 * within:.0f}")
    told = re.search(rf"models gain ({NUMBER}) to ({NUMBER}) points by plans of 32 rows, with "
                     r"(\d+)% to (\d+)% beaten", LAW)  # fmt: skip
    code = [one for one in found if one[:2] == ("code", "static") and one.batch_size == 32]
    gains, shares = ([one[place] for one in code] for place in (5, 4))
    assert numbers(" ".join(told.group(1, 2))) == [min(gains), max(gains)]
    assert told.group(3, 4) == tuple(f"{100 * one:.0f}" for one in (min(shares), max(shares)))
    told = re.search(r"(\d+)% to (\d+)% of the in-batch pairs of plans from 5,000 and 20,000", LAW)
    shares = [share for size in (32, 256)
              for data, rows, share, _ in law.figures(grid, size, "false_negatives")
              if data in ("dictionary", "gloss", "edict") and rows <= 20_000]  # fmt: skip
    ends = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    assert told.groups() == tuple(ends)
    told = re.search(
        rf"end level on six data sets \(({NUMBER}) to ({NUMBER}) points, three seeds\)", LAW
    )
    gains = [grid.gain({"data": data, **law.OTHERS, **law.USUAL}, line, "planned")
             for data in law.DATA for line in ("refine-0", "refine-4")]  # fmt: skip
    means = [gain[0] for gain in gains if gain is not None]
    assert numbers(" ".join(told.groups())) == [round(min(means), 1), round(max(means), 1)]
    base, one, four = (table.final(table.runs(), "translation", line, 2)
                       for line in ("shuffled", "planned-swaps-1", "planned-later"))  # fmt: skip
    one, four = (table.over(own, base, "ndcg@10") for own in (one, four))
    assert f"({one} over shuffled batches with one pass, {four} with four)" in LAW
    told = re.search(rf"with a plan take ({NUMBER}) to ({NUMBER}) times the processor time", LAW)
    times = law.times(grid)
    assert numbers(" ".join(told.groups())) == [round(min(times), 1), round(max(times), 1)]
    for line, epochs in (("dimensions-32", 2.0), ("every-2", 4.0)):
        every = [{"data": data, **law.OTHERS, **law.USUAL, "epochs": epochs} for data in law.DATA]
        gains = [grid.gain(place, line, "planned") for place in every]
        times = [grid.time(place, line, "planned") for place in every]
        lost = " and ".join(f"{-mean:.1f} ± {half:.1f}" for mean, half, _ in gains[:2])
        taken = f"{min(times):.2f} to {max(times):.2f} of the time"
        assert re.search(rf"{re.escape(taken)}[^.]*, and ends? {re.escape(lost)} points lower", LAW)


def test_the_page_of_the_law_states_what_larger_batches_gain():
    grid = law.Grid()
    most = {data: max(grid.values("rows", data=data, line="planned", **law.USUAL))
            for data in law.DATA if data != "code"}  # fmt: skip

    def gains(large, planned, rows):
        """Of batches of 256 over planned ones of 32: mean scores."""
        for data in rows:
            place = {"data": data, "rows": rows[data], **law.USUAL}
            own, other = (grid.of({**place, "batch_size": size}, line).values()
                          for size, line in ((256, large), (32, planned)))  # fmt: skip
            yield float(np.mean([run["test"] for run in own])
                        - np.mean([run["test"] for run in other]))  # fmt: skip

    few = dict.fromkeys(law.DATA, 5_000)
    help_gain, *above = gains("shuffled", "planned", most)
    hard = [*gains("hardness", "planned-hardness", most)]
    even, hard_few = ([*gains(*lines, few)] for lines in
                      (("shuffled", "planned"), ("hardness", "planned-hardness")))  # fmt: skip
    sentence = (
        f"shuffled batches of 256 end {min(above):.1f} to {max(above):.1f} points above planned "
        f"ones of 32 on four data sets, and {-help_gain:.1f} below on help; both with "
        f"`hardness_mode`, {min(hard):.1f} to {max(hard):.1f} above on all five. With 5,000 pairs, "
        f"they end {min(even):.1f} to {max(even):+.1f} points from them, and with `hardness_mode` "
        f"{-min(hard_few):.1f} below to {max(hard_few):.1f} above."
    )
    assert sentence.replace("-", "\N{MINUS SIGN}") in LAW


def test_the_page_of_guards_states_what_known_answers_cost():
    assert f"\n\n{known.table(law.Grid(known.RESULTS))}\n\n" in GUARDS


def test_the_guard_of_the_first_plan(embeddings):
    """The share of likely false negatives without it, by the guard of the first plan."""
    told = float(re.search(r"without its guard, ([\d.]+)% of these pairs", README)[1])
    options = {"mega_batches": 2, "guard": False, "device": "cpu"}
    plan = batchplan.plan(embeddings, planner="partition", **options)
    guard = batchplan.evaluate(plan, embeddings, relative_margin=0.1, device="cpu").guard
    assert 100 * guard.false_negatives == pytest.approx(told, abs=0.2)


def test_rows_of_zeros_are_refused_by_all_that_compare_rows():
    x = np.random.default_rng(0).standard_normal((256, 8)).astype(np.float32)
    x[3] = 0
    taken = set()
    for name, planner in NAMES.items():
        if planner.options().makes_table():
            continue
        try:
            batchplan.plan(x, planner=name, batch_size=16, device="cpu")
            taken.add(name)
        except batchplan.InputError as error:
            assert "rows of zeros" in str(error)  # noqa: PT017
    told = re.search(r"`(\w+)` and `(\w+)` compare none, unless a guard has", FORMATS)
    assert taken == set(told.groups())
    for name in taken:
        with pytest.raises(batchplan.InputError, match="rows of zeros"):
            batchplan.plan(x, planner=name, batch_size=16, relative_margin=0.1, device="cpu")
