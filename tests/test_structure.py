"""The rooms of the house: who may import whom, and what is where."""

from __future__ import annotations

import ast
from functools import cache
from itertools import product, takewhile
from pathlib import Path

from batchplan.planners import PLANNERS

ROOT = Path(__file__).parents[1] / "batchplan"
FILES = {
    ".".join(("batchplan", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in ROOT.rglob("*.py")
}


@cache
def imported(name):
    """The modules of the package that a module imports, anywhere in it, for type hints and by
    `import_module` too."""
    found, tree = set(), ast.parse(FILES[name].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & FILES.keys()
            if below - FILES.keys():
                found.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            found |= named(node.args[0], name, tree)
    return {one for one in found & FILES.keys() if one != name}


def named(argument, name, tree):
    """The modules that the argument of `import_module` may name: each part that is no constant may
    be any string in the module, such as one of a table of modules or functions; if that gives
    none, any name."""
    strings = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant)}
    parts = []
    for part in getattr(argument, "values", [argument]):
        known = part.value if isinstance(part, ast.Constant) else None
        known = name if "'__name__'" in ast.dump(part) else known
        parts.append([known] if known else [text for text in strings if isinstance(text, str)])
    texts = {"".join(words) for words in product(*parts)}
    found = FILES.keys() & (texts | {text.rpartition(".")[0] for text in texts})
    start = "".join(words[0] for words in takewhile(lambda words: len(words) == 1, parts))
    return found or {one for one in FILES if start and one.startswith(start)}


def circles():
    """Sets of modules that import each other (Tarjan 1972)."""
    numbers, lows, stack, found = {}, {}, [], []

    def visit(name):
        numbers[name] = lows[name] = len(numbers)
        stack.append(name)
        for other in sorted(imported(name)):
            if other not in numbers:
                visit(other)
            if other in stack:
                lows[name] = min(lows[name], lows[other])
        if lows[name] == numbers[name]:
            together = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            found.append(together)

    for name in sorted(FILES):
        if name not in numbers:
            visit(name)
    return [together for together in found if len(together) > 1]


def test_imports_are_read():
    assert "batchplan.kernels" in imported("batchplan.refinement.kernel")
    assert "batchplan.plans.plan" in imported("batchplan.plans")  # for type hints alone
    for name, other in (  # by import_module
        ("cli.commands", "cli.planning"),
        ("planners.table", "planners.papers.knn.planner"),
        ("plans.formats", "plans.formats.npy"),
        ("materialize.formats", "materialize.formats.mds"),
    ):
        assert f"batchplan.{other}" in imported(f"batchplan.{name}")


def test_no_modules_import_each_other():
    assert circles() == []


def test_dataclasses_are_frozen():
    found = set()
    for path in FILES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                how = " ".join(map(ast.unparse, node.decorator_list))
                if "dataclass" in how and "frozen=True" not in how:
                    found.add(node.name)
    assert found == {"PlanMaker", "Visits", "Pass", "Epoch", "Ordered"}  # what they are for


def test_imports_between_rooms_go_one_way():
    """From the command line down, as docs/architecture.md says."""
    rooms = [
        "cli",
        "consumption",
        "comparison",
        "gates",
        "report",
        "training",
        "planners",
        "quality",
        "refinement",
        "graph",
    ]
    rooms += ["guard", "materialize", "embedding", "plans", "data", "files"]
    for name in FILES:
        room = name.split(".")[1] if "." in name else ""
        if room in rooms:
            others = {other.split(".")[1] for other in imported(name) if "." in other}
            assert not others & set(rooms[: rooms.index(room)]), name


def test_planners_hold_planners_alone():
    """The table, what runs it and what planners share; any other file or folder is a planner's."""
    functions = {
        planner.function.removeprefix("batchplan.planners.") for planner in PLANNERS.values()
    }
    homes = {function.removeprefix("papers.").partition(".")[0] for function in functions}
    places = {path.stem for path in (ROOT / "planners").iterdir() if "__" not in path.name}
    papers = {path.stem for path in (ROOT / "planners/papers").iterdir() if "__" not in path.name}
    assert papers == {
        function.split(".")[1] for function in functions if function.startswith("papers.")
    }
    assert (places | papers) - {"papers"} == homes | {"choice", "common", "planning", "table"}
    for planner in PLANNERS.values():
        assert planner.load().__doc__


def test_graph_is_not_for_papers_alone():
    """What only planners of papers need is in their folders."""
    papers, found = "batchplan.planners.papers.", set()
    rest = [name for name in FILES if not name.startswith((papers, "batchplan.graph"))]
    while rest:
        found.add(name := rest.pop())
        rest += [one for one in imported(name) - found if not one.startswith(papers)]
    assert {name for name in FILES if name.startswith("batchplan.graph.")} <= found


def test_metrics_share_no_code_with_what_they_judge():
    judged = ("planners", "refinement", "guard")
    for name in FILES:
        if name.startswith("batchplan.quality."):
            rooms = {other.split(".")[1] for other in imported(name) if "." in other}
            assert not rooms & set(judged), name


def test_what_verifies_consumption_shares_no_code_with_what_it_judges():
    for name in FILES:
        if name.startswith("batchplan.consumption."):
            assert not any(other.startswith("batchplan.training") for other in imported(name)), name
            assert "batchplan.plans.steps" not in imported(name), name


def test_what_is_compiled_uses_nothing_of_files_that_compile_nothing():
    """Otherwise a change of these files would not compile it again (batchplan/kernels.py)."""
    for name, path in FILES.items():
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if _is_compiled(node)]
        constants = [node for node in tree.body if isinstance(node, ast.Assign)]
        parts = functions + constants if functions else []
        nodes = (node for part in parts for node in ast.walk(part))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in FILES:
                names = {alias.asname or alias.name for alias in node.names}
                source = FILES[node.module].read_text()
                assert not used & names or "njit" in source, f"{name}: {used & names}"


def _is_compiled(node):
    return any("njit" in ast.unparse(one) for one in getattr(node, "decorator_list", ()))


def test_rooms_below_the_command_line_do_not_import_it():
    for name in FILES:
        if not name.startswith(("batchplan.cli", "batchplan.__main__")):
            assert not any(other.startswith("batchplan.cli") for other in imported(name)), name


def calling(*names):
    """The modules that call a function of these names, such as ``json.loads``."""
    return {
        name
        for name, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names
    }


def test_what_reads_untrusted_bytes():
    """As docs/architecture.md and SECURITY.md say."""
    assert calling("json.loads", "json.load", "tomllib.loads", "tomllib.load") == {
        "batchplan.files.documents", "batchplan.plans.formats.jsonl"
    }  # fmt: skip
    assert calling("pickle.loads", "pickle.load", "torch.load", "eval", "exec") == {
        "batchplan.kernels", "batchplan.planners.partition.ray_task"
    }  # fmt: skip
