"""The grammar as tables: what is accepted, what is refused where, and that printing gives it back."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest

from core.tasks.workflow_dsl.grammar import (
    MAX_OPERATORS,
    Call,
    Conditional,
    DslError,
    Loop,
    Operator,
    Parallel,
    Step,
    Steps,
    Workflow,
    operators,
    parse,
    render,
    structure,
    walk,
)

FIFTEEN = " -> ".join(["Custom"] * 15)


def call(name: str) -> Call:
    return Call(operator=Operator(name))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Custom", (call("Custom"),)),
        ("Programmer -> Custom", (call("Programmer"), call("Custom"))),
        (
            "Custom -> Review ? Revise : done",
            (call("Custom"), Conditional(condition=Operator.REVIEW, action=Operator.REVISE)),
        ),
        (
            "[Custom, Test -> Format] -> MdEnsemble",
            (Parallel(branches=((call("Custom"),), (call("Test"), call("Format"))), ensemble=Operator.MD_ENSEMBLE),),
        ),
        ("(Decompose -> Verify) * 2", (Loop(body=(call("Decompose"), call("Verify")), times=2),)),
        # A conditional in the middle: `done` ends the conditional, not the workflow.
        (
            "Review ? Revise : done -> Format",
            (Conditional(condition=Operator.REVIEW, action=Operator.REVISE), call("Format")),
        ),
        # One block inside a block of the other kind, both ways round.
        (
            "([Custom, Custom] -> ScEnsemble) * 3",
            (
                Loop(
                    body=(Parallel(branches=((call("Custom"),), (call("Custom"),)), ensemble=Operator.SC_ENSEMBLE),),
                    times=3,
                ),
            ),
        ),
        (
            "[(Custom) * 1, Custom] -> ScEnsemble",
            (
                Parallel(
                    branches=((Loop(body=(call("Custom"),), times=1),), (call("Custom"),)),
                    ensemble=Operator.SC_ENSEMBLE,
                ),
            ),
        ),
    ],
)
def test_parses(text: str, steps: Steps) -> None:
    assert parse(text) == Workflow(steps=steps)
    assert render(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  Custom\n", "Custom"),
        ("Custom->Programmer", "Custom -> Programmer"),
        ("Custom\t->\r\n  Programmer", "Custom -> Programmer"),
        ("[ Custom,Custom ]->ScEnsemble", "[Custom, Custom] -> ScEnsemble"),
        ("Review?Revise:done", "Review ? Revise : done"),
        ("( Review->Revise )*3", "(Review -> Revise) * 3"),
        (FIFTEEN, FIFTEEN),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert render(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        # Positions count from 0 and point at the token that is wrong.
        ("", 0, "an operator, '[' or '('"),
        ("   ", 3, "an operator, '[' or '('"),
        ("Foo", 0, "an operator (Custom, AnswerGenerate"),
        ("custom", 0, "an operator (Custom"),
        ("Custom2", 0, "an operator (Custom"),
        ("Programmer's", 10, "'->' or the end"),
        ("DSL: Custom", 0, "an operator (Custom"),
        ("Custom ->", 9, "an operator, '[' or '('"),
        ("-> Custom", 0, "an operator, '[' or '('"),
        ("Custom -> -> Test", 10, "an operator, '[' or '('"),
        ("Custom Custom", 7, "'->' or the end"),
        ("Custom -> done", 10, "an operator (Custom"),
        ("Custom - > Test", 7, "'->' or the end"),
        ("Custom\u2192Test", 6, "'->' or the end"),
        ("Custom\u00a0", 6, "'->' or the end"),  # white space is ASCII white space
        ("Custom -> Review ? Revise", 25, "':'"),
        ("Review ? Revise : Custom", 18, "'done'"),
        ("Review ? Revise : Done", 18, "'done'"),
        ("Review ? (Revise) * 2 : done", 9, "an operator (Custom"),
        ("Review ? Revise : done done", 23, "'->' or the end"),
        ("[Custom, Custom]", 16, "'-> ScEnsemble' or '-> MdEnsemble'"),
        ("[Custom, Custom] -> Custom", 20, "'-> ScEnsemble' or '-> MdEnsemble'"),
        ("[Custom, Custom] -> (ScEnsemble) * 2", 20, "'-> ScEnsemble' or '-> MdEnsemble'"),
        ("[Custom, Custom] -> ScEnsemble ? Revise : done", 31, "'->' or the end"),
        ("[Custom] -> ScEnsemble", 7, "'->' or ',' (a parallel block has at least two branches)"),
        ("[Custom, ] -> ScEnsemble", 9, "an operator, '[' or '('"),
        ("[] -> ScEnsemble", 1, "an operator, '[' or '('"),
        ("[Custom, Custom -> ScEnsemble", 29, "'->', ',' or ']'"),
        ("[Custom, [Custom, Test] -> ScEnsemble] -> ScEnsemble", 9, "a parallel block cannot stand inside"),
        ("(Custom) * 0", 11, "1, 2 or 3"),
        ("(Custom) * 4", 11, "1, 2 or 3"),
        ("(Custom) * 03", 11, "1, 2 or 3"),
        ("(Custom) * -1", 11, "1, 2 or 3"),
        ("(Review -> Revise) *", 20, "1, 2 or 3"),
        ("(Custom)", 8, "'*' and how often"),
        ("(Custom * 2)", 8, "'->' or ')'"),
        ("() * 2", 1, "an operator, '[' or '('"),
        ("((Custom) * 2) * 2", 1, "a loop cannot stand inside"),
        ("([(Custom) * 2, Test] -> ScEnsemble) * 2", 2, "a loop cannot stand inside"),
        # What the seed's parser took for three times Revise.
        ("Programmer -> Custom -> Review -> Revise *", 41, "'->' or the end"),
        ("Revise * 3", 7, "'->' or the end"),
        (f"{FIFTEEN} -> Test", 150, "at most 15 operators"),  # 15 * 6 letters + 15 * 4 for arrows
    ],
)
def test_refuses_with_position(text: str, position: int, expected: str) -> None:
    with pytest.raises(DslError) as caught:
        parse(text)
    assert caught.value.position == position
    assert expected in caught.value.expected
    assert str(caught.value).startswith(f"position {position}: expected ")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_000_000,
        "[" * 1_000_000,
        "[(" * 500_000,
        "A" * 1_000_000,
        " " * 1_000_000,
        "Custom -> " * 100_000,
        "(Custom) * " + "9" * 1_000_000,
        "\x00" * 1_000_000,
        "Review ? " * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_refused_quickly_and_shortly(text: str) -> None:
    start = perf_counter()
    with pytest.raises(DslError) as caught:
        parse(text)
    assert perf_counter() - start < 0.5  # measured: 3 ms at most
    assert len(str(caught.value)) < 400


def random_steps(rng: Random, budget: list[int], inside: frozenset[str] = frozenset()) -> Steps:
    """Steps of any shape the language allows, as long as operators are left in the budget."""
    steps: list[Step] = []
    while not steps or (budget[0] > 0 and rng.random() < 0.5):
        kind = rng.choice(["call", "conditional", "loop", "parallel"])
        if kind == "loop" and "loop" not in inside and budget[0] >= 2:
            steps.append(Loop(body=random_steps(rng, budget, inside | {"loop"}), times=rng.randint(1, 3)))
        elif kind == "parallel" and "parallel" not in inside and budget[0] >= 6:
            budget[0] -= 1
            branches = tuple(random_steps(rng, budget, inside | {"parallel"}) for _ in range(rng.randint(2, 3)))
            ensemble = rng.choice([Operator.SC_ENSEMBLE, Operator.MD_ENSEMBLE])
            steps.append(Parallel(branches=branches, ensemble=ensemble))
        elif kind == "conditional" and budget[0] >= 2:
            budget[0] -= 2
            steps.append(Conditional(condition=rng.choice(list(Operator)), action=rng.choice(list(Operator))))
        else:
            budget[0] -= 1
            steps.append(Call(operator=rng.choice(list(Operator))))
    return tuple(steps)


def random_workflows(count: int) -> list[Workflow]:
    rng = Random(20251205)
    drawn: list[Workflow] = []
    while len(drawn) < count:
        steps = random_steps(rng, [rng.randint(1, 13)])
        if sum(1 for _ in walk(steps)) <= MAX_OPERATORS:
            drawn.append(Workflow(steps=steps))
    return drawn


def test_every_workflow_comes_back_from_its_text() -> None:
    workflows = random_workflows(2000)
    nested = 0
    for workflow in workflows:
        text = render(workflow)
        assert parse(text) == workflow, text
        assert parse(text.replace(" ", "")) == workflow  # no token needs a space around it
        nested += any(isinstance(step, Loop) and "[" in text for step in workflow.steps)
    assert nested > 50  # the draw does reach blocks inside blocks
    assert {structure(workflow) for workflow in workflows} == {"single", "chain", "conditional", "parallel", "loop"}


def test_changed_texts_never_raise_anything_but_a_dsl_error() -> None:
    rng = Random(7)
    refused = 0
    for workflow in random_workflows(1000):
        letters = list(render(workflow))
        for _ in range(rng.randint(1, 3)):
            letters[rng.randrange(len(letters))] = rng.choice(list("()[]*?:->, 123aZ\n\x00"))
        try:
            again = parse("".join(letters))
        except DslError as error:
            refused += 0 <= error.position <= len(letters)
            continue
        assert parse(render(again)) == again
    assert refused > 500


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Workflow(steps=()), "at least one step"),
        (lambda: Loop(body=(), times=1), "at least one step"),
        (lambda: Loop(body=(call("Custom"),), times=4), "1 to 3"),
        (lambda: Loop(body=(call("Custom"),), times=0), "1 to 3"),
        (lambda: Parallel(branches=((call("Custom"),),), ensemble=Operator.SC_ENSEMBLE), "two branches"),
        (lambda: Parallel(branches=((call("Custom"),), ()), ensemble=Operator.SC_ENSEMBLE), "each with a step"),
        (
            lambda: Parallel(branches=((call("Custom"),), (call("Test"),)), ensemble=Operator.CUSTOM),
            "ScEnsemble or MdEnsemble",
        ),
        (lambda: Workflow(steps=(call("Custom"),) * 16), "at most 15 operators, not 16"),
        (
            lambda: Workflow(steps=(Loop(body=(Loop(body=(call("Custom"),), times=1),), times=1),)),
            "a loop cannot stand inside another one",
        ),
    ],
)
def test_a_workflow_that_has_no_text_cannot_be_built(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("Custom", "single", 1),
        ("Custom -> Test", "chain", 2),
        ("Review ? Revise : done", "conditional", 2),
        ("[Custom, Test] -> ScEnsemble", "parallel", 3),  # the ensemble counts
        ("(Custom) * 3", "loop", 1),  # a body counts once
        # loop > parallel > conditional > chain, wherever the construct stands
        ("[Custom, Review ? Revise : done] -> ScEnsemble", "parallel", 4),
        ("Review ? Revise : done -> [(Test) * 2, Custom] -> ScEnsemble", "loop", 5),
        ("Custom -> Review ? Revise : done", "conditional", 3),
    ],
)
def test_structure(text: str, kind: str, count: int) -> None:
    assert structure(parse(text)) == kind
    assert len(operators(parse(text))) == count


def test_operators_are_in_reading_order() -> None:
    names = operators(parse("Custom -> [Test, (Verify) * 2] -> MdEnsemble -> Review ? Revise : done"))
    assert names == ("Custom", "Test", "Verify", "MdEnsemble", "Review", "Revise")
