"""Gates: limits on the metrics of a plan, absolute or against a baseline."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.gates.baseline import Baseline as Baseline
    from batchplan.gates.baseline import comparable_settings as comparable_settings
    from batchplan.gates.checking import check_plan as check_plan
    from batchplan.gates.gate import fail_over as fail_over
    from batchplan.gates.gate import fail_regress as fail_regress
    from batchplan.gates.gate import fail_under as fail_under
    from batchplan.gates.renderings import junit as junit
    from batchplan.gates.renderings import markdown as markdown
    from batchplan.gates.verdicts import Judgement as Judgement
    from batchplan.gates.verdicts import judge as judge

__getattr__, __dir__ = lazily(__name__, __file__)
