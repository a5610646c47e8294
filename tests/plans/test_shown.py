"""A plan where Python shows it: at a prompt, in a notebook, in a loop."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from batchplan import Plan
from batchplan.plans import Batching

ORDER = np.random.default_rng(0).permutation(50)


def cut(order=ORDER, batching=None, **facts):
    order = np.asarray(order)
    batching = batching or Batching(8)
    facts = {"planner": "random", "seed": 3, **facts}
    return Plan.cut(order, batching, num_rows=len(order), **facts)


def test_a_plan_is_a_sequence_of_batches():
    plan = cut()
    batches = [batch.tolist() for batch in plan]
    assert batches == [batch.tolist() for batch in plan.batches()]
    assert len(plan) == len(batches) == 7
    for at in (0, 3, 6, -1, -7, np.int64(2)):
        assert plan[at].tolist() == batches[at]
    assert plan[0].tolist() == ORDER[:8].tolist()
    with pytest.raises(ValueError, match="read-only"):
        plan[0][0] = 1
    for beyond in (7, -8):
        with pytest.raises(IndexError, match="the plan has 7 batches"):
            _ = plan[beyond]
    with pytest.raises(TypeError):
        _ = plan["0"]


def test_its_text_fits_a_line():
    assert repr(cut()) == "Plan(random: 7 batches of 8 over 50 rows)"
    assert repr(cut(range(8))) == "Plan(random: 1 batch of 8 over 8 rows)"
    several = cut(range(1000), Batching(8, world_size=4))
    assert repr(several) == "Plan(random: 128 batches of 8 for 4 devices over 1,000 rows)"
    assert "unknown planner" in repr(cut(planner=""))
    strange = repr(cut(planner="a\nb\x1b[0m" * 100))
    assert len(strange) < 100
    assert strange.isprintable()


def parsed(html):
    return ElementTree.fromstring(f"<div>{html}</div>")


def test_a_notebook_gets_a_table_and_a_picture():
    page = parsed(cut()._repr_html_())
    cells = {row[0].text: row[1].text for row in page.iter("tr")}
    assert cells == {
        "planner": "random", "batches": "7 of 8", "rows": "50, each once", "seed": "3",
    }  # fmt: skip
    path = page.find("svg/path").get("d")
    dots = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h1", path)]
    assert len(dots) == 50
    across, down = zip(*dots, strict=True)
    assert list(across) == sorted(across)
    assert np.argsort(np.argsort(down)).tolist() == ORDER.tolist()
    assert page.find("svg/title").text


def test_the_page_of_a_large_plan_is_small_and_safe():
    plan = cut(range(100_000), planner="<script>alert(1)</script>&'\"")
    html = plan._repr_html_()
    assert "<script" not in html
    assert len(html) < 40_000
    assert "<script>" in next(parsed(html).iter("td")).text
