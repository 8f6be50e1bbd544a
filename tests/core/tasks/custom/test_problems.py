"""Templates fill prompts from a row; rows become problems: who is held out, and that nobody is in two splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.config.task import CustomTaskSpec, DataSpec
from core.errors import SpecError
from core.tasks.base import Example
from core.tasks.custom.problems import LONGEST, Prompts, parse, rows_of, splits_of
from core.tasks.text import prompt_of
from tests.core.tasks.custom.conftest import Spec


def lines(*questions: str, **more: object) -> str:
    return "".join(json.dumps({"q": question, **more}) + "\n" for question in questions)


def split(spec: CustomTaskSpec) -> dict[str, list[Example]]:
    return {name: list(examples) for name, examples in splits_of(spec, Prompts(spec)).items()}


def asked(spec: CustomTaskSpec) -> dict[str, list[str]]:
    return {name: [prompt_of(example).text for example in examples] for name, examples in split(spec).items()}


NUMBERS = lines(*map(str, range(20)))


def test_held_out_problems_are_no_training_ones_and_stay_the_same(spec: Spec) -> None:
    few = asked(spec(NUMBERS, train_prompts=5, eval_prompts=6))
    many = asked(spec(NUMBERS, train_prompts=14, eval_prompts=6))
    assert few["eval"] == many["eval"]
    assert few["train"] == many["train"][:5]
    assert sorted(many["train"] + many["eval"]) == sorted(f"{n}?" for n in range(20))
    assert many["test"] == []
    assert asked(spec(NUMBERS, eval_prompts=6, data_seed=1))["eval"] != few["eval"]


def test_ids_and_facts(spec: Spec) -> None:
    found = split(spec(lines("x", "y", answer=3), train_prompts=1))
    assert [example.id for examples in found.values() for example in examples] == ["train-00000", "eval-00000"]
    assert found["train"][0].facts in ({"q": "x", "answer": 3}, {"q": "y", "answer": 3})
    assert not prompt_of(found["train"][0]).plain
    assert prompt_of(split(spec(lines("x", "y"), chat_template=False))["train"][0]).plain


def test_a_duplicate_of_a_held_out_prompt_is_not_trained_on(spec: Spec) -> None:
    # "a" thrice (white space and case aside) and "b" twice: whichever is held out, its doubles leave training.
    found = asked(spec(lines("a", " A", "a ", "b", "b"), train_prompts=2, prompt="{q}"))
    norm = {name: {prompt.strip().lower() for prompt in prompts} for name, prompts in found.items()}
    assert len(norm["eval"]) == 1
    assert norm["train"].isdisjoint(norm["eval"])


def test_a_duplicate_inside_training_stays(spec: Spec) -> None:
    held_out = spec(lines("z"), name="eval.jsonl").data
    found = asked(spec(lines("a", "a", "b"), train_prompts=3, eval_data=held_out.model_dump()))
    assert sorted(found["train"]) == ["a?", "a?", "b?"]
    assert found["eval"] == ["z?"]


def test_test_problems_are_neither_trained_on_nor_evaluated(spec: Spec) -> None:
    test = spec(lines("0", "1", "2"), name="test.jsonl").data
    found = asked(spec(NUMBERS, train_prompts=11, eval_prompts=6, test_data=test.model_dump()))
    assert found["test"] == ["0?", "1?", "2?"]  # all of them, in the file's order
    assert not {"0?", "1?", "2?"} & {*found["train"], *found["eval"]}
    assert len({*found["train"], *found["eval"]}) == 17


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (NUMBERS, {"train_prompts": 15, "eval_prompts": 6},
         "task.train_prompts: got 15, but 14 of the data's 20 rows are left to train on, the others ask what is held "
         "out; lower task.train_prompts to 14, or give more data"),
        (NUMBERS, {"eval_prompts": 20}, "but 0 of the data's 20 rows are left to train on"),
        (lines("a", "a", "b"), {"eval_prompts": 3},
         "task.eval_prompts: got 3, but 2 problems can be held out of 3 rows with 2 different prompts; lower "
         "task.eval_prompts to 2, or give more data"),
        (lines("a"), {}, "but 0 of the data's 1 rows are left to train on"),
        (lines("a"), {}, "give two different prompts at least, or task.eval_data"),
    ],
)  # fmt: skip
def test_too_few_rows_are_refused_with_the_numbers(
    content: str, more: dict[str, Any], message: str, spec: Spec
) -> None:
    with pytest.raises(SpecError) as caught:
        split(spec(content, **more))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (NUMBERS, {"prompt": "{Q}"}, "task.prompt: no column 'Q'; did you mean 'q'? There are: q"),
        (NUMBERS, {"prompt": "{question}"}, "task.prompt: no column 'question'; There are: q"),
        (NUMBERS, {"answer": "{a}"}, "task.answer: no column 'a'"),
        (NUMBERS, {"gold": {"completion": "{g}"}}, "task.gold.completion: no column 'g'"),
        (NUMBERS, {"prompt": None, "messages": "chat"}, "task.messages: no column 'chat'"),
        ('{"q": "x"}\n{"q": null}\n', {}, "line 2: task.prompt: {q} is null"),
        ('{"q": "x"}\n{"a": "y"}\n', {}, "line 2: task.prompt: {q} is null"),  # a row without the column
        ('{"q": "x", "a": null}\n{"q": "y", "a": null}', {"answer": "{a}"}, "task.answer: {a} is null"),
        (lines(" ", "x"), {"prompt": "{q}"}, "a blank prompt"),
        (lines("x" * LONGEST, "y" * LONGEST), {}, "a prompt of 200,001 characters; allowed: at most 200,000"),
    ],
    ids=[str(number) for number in range(10)],
)  # fmt: skip
def test_a_row_that_asks_nothing_is_refused(content: str, more: dict[str, Any], message: str, spec: Spec) -> None:
    with pytest.raises(SpecError) as caught:
        split(spec(content, **more))
    assert message in str(caught.value)


def chats(*conversations: object) -> str:
    return "".join(json.dumps({"chat": conversation}) + "\n" for conversation in conversations)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


CHAT: dict[str, Any] = {"prompt": None, "messages": "chat"}


def test_conversations_are_asked_as_they_are(spec: Spec) -> None:
    system = {"role": "system", "content": "Be kind."}
    content = chats([system, user("a"), {"role": "assistant", "content": "b"}, user("c")], [user("d")])
    found = split(spec(content, system="Be brief.", **CHAT))
    told = {prompt_of(e).text: prompt_of(e).messages for examples in found.values() for e in examples}
    assert told["c"] is not None
    assert [message["content"] for message in told["c"]] == ["Be kind.", "a", "b", "c"]  # its own system message stays
    assert told["d"] == [{"role": "system", "content": "Be brief."}, user("d")]


def test_a_conversation_may_be_text_and_have_parts(spec: Spec, tmp_path: Path) -> None:
    chat = json.dumps([user("hi")]).replace('"', '""')
    found = split(spec(f'chat\n"{chat}"\n"{chat.replace("hi", "ho")}"\n', name="a.csv", **CHAT))
    assert {prompt_of(e).text for examples in found.values() for e in examples} == {"hi", "ho"}
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    found = split(spec(chats(parts, [user("x")]), **CHAT))
    assert {prompt_of(e).text for examples in found.values() for e in examples} == {"ab", "x"}


def test_a_system_message_stands_before_a_prompt(spec: Spec) -> None:
    (example,) = split(spec(lines("a", "b"), system="Be brief."))["eval"]
    assert prompt_of(example).messages == [{"role": "system", "content": "Be brief."}, user(prompt_of(example).text)]


@pytest.mark.parametrize(
    ("conversation", "message"),
    [
        (None, "got null; a conversation is a list of messages"),
        ("hello", "got a text"),
        ([], "got an empty list"),
        (["hello"], "got a message without role and content"),
        ([{"role": "user"}], "got a message without role and content"),
        ([{"role": "human", "content": "x"}], "got the role 'human'; allowed: system"),
        ([{"role": "user", "content": 3}], "got a message whose content is no text"),
        ([user("x"), {"role": "assistant", "content": "y"}], "the last message is the assistant's"),
    ],
)
def test_what_is_no_conversation_is_refused(conversation: object, message: str, spec: Spec) -> None:
    with pytest.raises(SpecError) as caught:
        split(spec(chats([user("first")], conversation), **CHAT))
    assert f"line 2: column 'chat': {message}" in str(caught.value)


ROW = {"q": "two", "n": 3, "x": 0.5, "ok": True, "no": None, "m": {"t": ["a", {"b": "deep"}]}, "a b.c": "odd"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{q}?", "two?"),
        ("{q}{q}", "twotwo"),
        ("{{{q}}}", "{two}"),
        ("{n} {x} {ok}", "3 0.5 true"),  # what is no text is JSON
        ("{m[t][0]} {m[t][-1][b]}", "a deep"),
        ("{m[t]}", '["a", {"b": "deep"}]'),
        ("{a b.c}", "odd"),  # a column's name, no attribute of anything
        ("{q}\n}}", "two\n}"),
    ],
)
def test_a_row_is_filled_in(template: str, text: str) -> None:
    assert parse(template, "task.prompt").filled(ROW) == text


@pytest.mark.parametrize("template", ["{", "}", "{q", "{}", "{q}}", "{q[}", "{[q]}", "{q{n}}", "{q[]}"])
def test_what_is_no_template_is_refused_with_its_place(template: str) -> None:
    with pytest.raises(SpecError, match=r"task.prompt: got .* at character \d+; allowed: \{column\}"):
        parse(template, "task.prompt")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{no}", "{no} is null"),
        ("{m[z]}", "{m[z]} finds nothing: no 'z'"),
        ("{m[t][2]}", "no '2'"),
        ("{q[0]}", "no '0' in \"two\""),  # no letters of a text
        ("{m[t][__class__]}", "no '__class__'"),
    ],
)
def test_what_a_row_does_not_have_is_told(template: str, message: str) -> None:
    with pytest.raises(LookupError) as caught:
        parse(template, "k").filled(ROW)
    assert message in str(caught.value.args[0])


def test_what_a_row_holds_is_no_template() -> None:
    assert parse("{q}", "k").filled({"q": "{n} {q.__class__}"}) == "{n} {q.__class__}"


def test_it_says_which_columns_it_needs() -> None:
    assert parse("{a[b]} {c} {a}", "k").columns == ["a", "c"]


def test_a_file_that_is_not_there_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text("{}")
    for name, hint in (("question.csv", "; did you mean questions.jsonl?"), ("other.csv", ".parquet")):
        with pytest.raises(SpecError, match="there is no such file") as caught:
            rows_of(DataSpec(path=str(tmp_path / name)), seed=0)
        assert str(caught.value).endswith(hint)
    with pytest.raises(SpecError, match="is a directory"):
        rows_of(DataSpec(path=str(tmp_path)), seed=0)
    with pytest.raises(SpecError, match="no folder"):
        rows_of(DataSpec(path=str(tmp_path / "no" / "a.csv")), seed=0)


def test_so_many_rows_are_drawn_by_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f'{{"q": {n}}}\n' for n in range(100)))
    drawn = {
        seed: [row.values["q"] for row in rows_of(DataSpec(path=str(file), max_rows=5), seed=seed)] for seed in (0, 1)
    }
    assert [len(set(numbers)) for numbers in drawn.values()] == [5, 5]
    assert drawn[0] != drawn[1]
    assert drawn[0] == [row.values["q"] for row in rows_of(DataSpec(path=str(file), max_rows=5), seed=0)]
    assert len(rows_of(DataSpec(path=str(file), max_rows=1000), seed=0)) == 100
