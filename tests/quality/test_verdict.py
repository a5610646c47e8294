"""Words that follow from figures."""

import json
from dataclasses import replace

import pytest

from batchplan.quality import evaluate, verdict_on
from batchplan.quality.metrics import METRICS
from batchplan.quality.verdict import choose, ranking


@pytest.fixture(scope="module")
def measured(helpers):
    """An evaluation, whose figures the tests replace."""
    embeddings = helpers.clustered(45, copies=4)
    return evaluate(
        helpers.make_plan(embeddings, 8), embeddings, relative_margin=0.1, random_trials=3
    )


@pytest.fixture
def told(measured):
    """The evaluation with these figures of its guard, as fractions, and others."""

    def told(reduction=0.13, share=0.03, random=0.07, *, above=1.0, limit_from="plans", **others):
        guard = replace(
            measured.guard, hardness=reduction, false_negatives=share,
            false_negatives_random=random, excludes_much=random > 0.05, limit_from=limit_from,
            loss_train=measured.guard.loss_random + above,
        )  # fmt: skip
        return replace(measured, guard=guard, loss_random_std=0.1, **others)

    return told


def test_train_on_what_is_hard_and_true(told):
    found = verdict_on(told())
    assert found.train
    assert found.sentence == (
        "train on this one, because 13.0% of the gap is closed among true negatives (random 0.0%), "
        "3% of pairs are likely false negatives (random 7%), and each row occurs once"
    )
    assert found.guard == "relative margin 0.1, as planned"
    assert [aspect.name for aspect in found.aspects] == [
        "hardness", "false negatives", "coverage", "freshness",
    ]  # fmt: skip
    assert all(aspect.good for aspect in found.aspects)
    document = json.loads(json.dumps(found.to_dict()))
    assert document["aspects"]["false_negatives"] == {
        "text": "3% of pairs are likely false negatives (random 7%)", "good": True,
    }  # fmt: skip


def test_somewhat_more_false_negatives_are_said(told):
    found = verdict_on(told(share=0.1))
    assert found.train
    assert "each row occurs once, although 10% of pairs are likely false" in found.sentence


def test_many_false_negatives_ask_for_a_guard(told):
    found = verdict_on(told(share=0.29, limit_from="default"))
    assert not found.train
    assert found.sentence.startswith("plan again with a guard before you train: 29% of pairs")
    assert "29% of pairs are likely false" in found.warnings[0]
    assert verdict_on(told(share=0.009, random=0.001)).train  # few, whatever random ones have


@pytest.mark.parametrize("above", [-0.3, 0.0, 0.19])
def test_luck_is_no_reason(told, above):
    found = verdict_on(told(0.001, above=above))
    assert not found.train
    assert found.sentence.startswith("random batches would do as well: 0.1% of the gap")


def test_warnings(told, measured):
    assert verdict_on(told(random=0.04)).warnings == ()
    (much,) = verdict_on(told(random=0.073)).warnings
    assert much.startswith("the guard excludes 7.3% of all rows from each row on average (3 of 45)")
    assert verdict_on(told(random=0.073, limit_from="default")).warnings == ()
    coverage = replace(measured.coverage, share_seen=0.6, rows_never_seen=18, repeats=2)
    few = verdict_on(told(random=0.04, fresh=False, partitions_rows=False, coverage=coverage))
    assert [warning.split(":")[0][:40] for warning in few.warnings] == [
        "nothing says from which embeddings this ", "18 of 45 rows are in no batch",
    ]  # fmt: skip
    assert "60% of the rows occur, with 2 repeats" in few.sentence


def test_one_batch_of_all_rows_is_no_harder_than_random_ones(helpers):
    """Nor if the order of its sums says so in the last digits."""
    embeddings = helpers.clustered(45, copies=4)
    for seed in range(8):
        plan = helpers.make_plan(embeddings, 45, seed=seed)
        found = evaluate(plan, embeddings, random_trials=2, device="cpu")
        assert verdict_on(found).sentence.startswith("random batches would do as well: 0.0% of")


def test_without_a_guard_all_pairs_count(told):
    found = verdict_on(replace(told(), guard=None, loss_random=0.5, loss_train=1.0))
    assert "among all negatives" in found.sentence
    assert "an unknown share of pairs is likely false" in found.sentence
    assert found.guard == "none, all pairs count"


def test_the_first_without_many_false_negatives_is_chosen(told):
    plans = [told(0.05, 0.07), told(0.19, 0.29), told(0.12, 0.03), told(-0.1, above=-1)]
    assert ranking(plans) == [1, 2, 0, 3]
    best, sentence, _ = choose("abcd", [""] * 4, plans)
    assert best == 2
    assert sentence.startswith("train on c, because 12.0% of the gap")
    assert "; not on b, of which 29% of pairs are likely false negatives" in sentence
    assert sentence.endswith(
        "; next is a, of which 5.0% of the gap is closed among true negatives (random 0.0%)"
    )
    none = choose("d", [""], plans[3:])
    assert none.plan is None
    assert none.sentence.startswith("train on none of these")


def test_ties_keep_their_order(told):
    assert ranking([told(), told(), told(0.2), told()]) == [2, 0, 1, 3]


def test_other_guards_are_said(told):
    limits = ["relative margin 0.1", "", "max score 0.5"]
    assert choose("abc", limits, [told()] * 3).guard == (
        "relative margin 0.1, as planned, for all plans; planned b with none, c with max score 0.5"
    )
    assert choose("a", limits[:1], [told()]).guard == "relative margin 0.1, as planned"
    assert choose("", [], []).guard is None


def test_plans_are_ranked_by_their_hardness(told):
    plans = [told(reduction=share) for share in (0.1, 0.6, 0.3)]
    assert ranking(plans) == [1, 2, 0]
    assert plans[1].hardness == plans[1].to_dict()["hardness"] == 0.6
    assert METRICS["hardness"].better == "higher"
