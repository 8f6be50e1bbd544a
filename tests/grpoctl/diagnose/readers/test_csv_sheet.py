"""What spreadsheets put around a table: titles, units, totals, decimal commas, a column for each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.csv_sheet import columns_at_the_top, read_table
from grpoctl.diagnose.readers.csv_table import READER, has_known_header


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "table.csv"
    file.write_text(text)
    return file


def read(tmp_path: Path, text: str) -> Reading:
    return READER.read(Source(name="table.csv", path=written(tmp_path, text)))


def cells(tmp_path: Path, text: str) -> list[list[str]]:
    return [row for _, row in read_table(written(tmp_path, text), []).rows]


def test_decimal_commas_between_semicolons_and_tabs(tmp_path: Path) -> None:
    text = "step;reward;lr;length;Abgeschnitten [%]\n1;0,5;1,00E-06;1.034,5;21,9\n2;0,25;9,375E-07;950;8\n"
    for delimiter in ";\t":
        found = read(tmp_path, text.replace(";", delimiter))
        told = [(row["reward/mean"], row["learning_rate"], row["completions/length"]) for row in found.case.rows]
        assert told == [(0.5, 1e-6, 1034.5), (0.25, 9.375e-7, 950.0)]
        assert [row["completions/truncated"] for row in found.case.rows] == pytest.approx([0.219, 0.08])
        assert "commas are read as decimal ones" in found.notes
    with pytest.raises(SpecError, match="got '0,5'; write a decimal point"):
        read(tmp_path, 'step,reward\n1,"0,5"\n')


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("step;length\n1;1,034\n", ["1", "1.034"]),  # nobody writes semicolons and thousands with commas
        ("step\tlength\n1\t1,034\n", ["1", "1,034"]),  # either
        ("step\treward\tlength\n1\t0.5\t1,034\n", ["1", "0.5", "1034"]),
        ("step;reward;length\n1;0.5;1,034\n", ["1", "0.5", "1034"]),
        ("step\treward\tlength\n1\t0,5\t1,034\n", ["1", "0.5", "1.034"]),
        ("step\treward\tlength\n1\t0,5\t1.034\n", ["1", "0.5", "1034"]),
        ("step;reward;length\n1;0,5;0.25\n", ["1", "0,5", "0.25"]),  # both, so neither is known
        ('step,reward,length\n"1,000",0.5,"1,034.5"\n', ["1000", "0.5", "1034.5"]),
        ('step,length\n1,"1,034.5"\n', ["1", "1034.5"]),
        ('step,length,kl\n1,"1,034",0.125\n', ["1", "1034", "0.125"]),
        ('step,length,kl\n1,"1,034",1.125\n', ["1", "1,034", "1.125"]),  # 1125?
        ("step;of;kl\n1;1, 2 and 3;4\n", ["1", "1, 2 and 3", "4"]),
        ("step;of;kl\n1;1,2 or 3;0,25\n", ["1", "1,2 or 3", "0.25"]),
    ],
)
def test_what_a_comma_is_in_a_table(text: str, row: list[str], tmp_path: Path) -> None:
    assert cells(tmp_path, text) == [row]


@pytest.mark.parametrize(
    ("name", "told", "known"),
    [
        ("reward", "1.201 1.250", None),
        ("reward", "1.201 1 99", None),
        ("reward", "1.201 1.250,5", [1201, 1250.5]),
        ("reward", "1.201 100", [1201, 100]),
        ("reward", "1.201 1.250.000", [1201, 1250000]),
        ("reward", "1201 1,5", [1201, 1.5]),
        ("length", "1.201 1.250", [1201, 1250]),  # what else
        ("iter", "1.201 1.250", [1201, 1250]),
    ],
)
def test_a_point_before_three_digits_beside_decimal_commas(
    name: str, told: str, known: list[float] | None, tmp_path: Path
) -> None:
    of = {"reward": "reward/mean", "length": "completions/length", "iter": "step"}[name]
    lines = told.split()
    number = [f"{name};{at};{value}" for at, value in enumerate(lines, 1)]
    kl = [f"kl;{at};0,0{at}" for at in range(1, len(lines) + 1)]
    wide = f"{name};kl\n" + "".join(f"{value};0,01\n" for value in lines)
    turned = f"x;{';'.join(map(str, range(1, len(lines) + 1)))}\n{name};{';'.join(lines)}\nkl{';0,01' * len(lines)}\n"
    long = "\n".join(["metric;step;value", *number, *kl]) + "\n"
    for text in (wide, turned, long)[: 1 if name == "iter" else 3]:
        if known is None:
            with pytest.raises(SpecError, match=r"got '1\.201 \(or 1201\)'; write a decimal comma, or no point"):
                read(tmp_path, text)
        else:
            assert [row[of] for row in read(tmp_path, text).case.rows] == known
    assert read(tmp_path, wide.replace("reward", "warmth")).case.rows[0]["kl"] == 0.01  # nobody reads the other
    beside = read(tmp_path, wide.replace(f"{name};", "warmth;length;").replace(";0,01", ";1.034;0,01"))
    assert [row["completions/length"] for row in beside.case.rows] == [1034] * len(lines)


def test_steps_of_a_long_table_are_no_numbers_of_its_metric(tmp_path: Path) -> None:
    found = read(tmp_path, "metric;step;value\nkl;1.201;0,5\nreward;1.202;5\n")
    assert [row["step"] for row in found.case.rows] == [1201, 1202]


SHEET = (
    "GRPO run 7,,,,\n"
    '"Model: small, lr 1e-6",,,,\n'
    ",,,,\n"
    "Step,Reward,Resp. length,Truncated,Comment\n"
    "#,0-1,tokens,% of samples,\n"
    '20,0.5,"901",6.5,\n'
    '40,0.25,"1,034",12,node 2 restarted\n'
    "60,0.75,900,0.5%,\n"
    ",,,,\n"
    "AVERAGE,0.5,900,9,\n"
    "MAX,0.5,1034,12,\n"
)


def test_a_title_units_and_totals_are_no_rows(tmp_path: Path) -> None:
    found = read(tmp_path, SHEET)
    told = [(row["step"], row["reward/mean"], row["completions/length"]) for row in found.case.rows]
    assert told == [(20, 0.5, 901), (40, 0.25, 1034), (60, 0.75, 900)]
    assert [row["completions/truncated"] for row in found.case.rows] == pytest.approx([0.065, 0.12, 0.005])
    assert {
        "the header is line 4: what stands above is left out",
        "line 5 has units, and no row",
        "2 rows at the end have no step (AVERAGE, MAX): they are left out",
    } <= {*found.notes}
    assert has_known_header(Source(name="table.csv", path=written(tmp_path, SHEET)))


def test_a_title_of_one_cell_and_another_delimiter(tmp_path: Path) -> None:
    found = read(tmp_path, "a run, with commas, and more\nstep;reward\n1;0.5\n2;0.25\n")
    assert [(row["step"], row["reward/mean"]) for row in found.case.rows] == [(1, 0.5), (2, 0.25)]
    commented = read(tmp_path, "# made by hand\n# step,reward\n1,0.5\n4,0.25\n")
    assert [(row["step"], row["reward/mean"]) for row in commented.case.rows] == [(1, 0.5), (4, 0.25)]


def test_what_is_no_title(tmp_path: Path) -> None:
    """A header of names that only --map tells, words in its rows, and a log with a table in it."""
    assert columns_at_the_top(written(tmp_path, "a,b\n1,2\n")) == ["a", "b"]
    assert columns_at_the_top(written(tmp_path, "a,b\nkl,reward\n")) == ["kl", "reward"]
    assert columns_at_the_top(written(tmp_path, "a,b\nkl,1\n")) == ["a", "b"]
    assert columns_at_the_top(written(tmp_path, "a,b\nkl,high\n")) == ["a", "b"]
    assert columns_at_the_top(written(tmp_path, "step,b\nkl,reward\n")) == ["step", "b"]
    assert columns_at_the_top(written(tmp_path, "a\nstep,reward\n1,0.5\nsaved\n")) == []
    assert columns_at_the_top(written(tmp_path, "step,reward\n1,0.5\nsaved, at last, to disk\n")) == ["step", "reward"]
    assert columns_at_the_top(written(tmp_path, "a,b,c\nkl,reward,1\n")) == ["a", "b", "c"]
    assert columns_at_the_top(written(tmp_path, "")) == []


def test_what_are_no_units(tmp_path: Path) -> None:
    assert cells(tmp_path, "step,reward,of\nsteps,,[tok/s]\n1,0.5,a\n") == [["1", "0.5", "a"]]
    assert cells(tmp_path, "step,reward,of\nfirst,,run\n1,0.5,a\n")[0] == ["first", "", "run"]
    assert cells(tmp_path, "step,reward,of\nsteps,,run\n1,0.5,a\n")[0] == ["steps", "", "run"]
    assert cells(tmp_path, "step,of\na,b\n1,x\n") == [["a", "b"], ["1", "x"]]  # one number below
    assert cells(tmp_path, "step,reward,kl\nstart,n/a,n/a\n1,0.5,0.1\n")[0][0] == "start"  # one word
    assert cells(tmp_path, "step,reward,of\n0,none,all of it\n1,0.5,a\n")[0][0] == "0"
    assert cells(tmp_path, "step,reward\nsteps,points\n") == [["steps", "points"]]
    assert cells(tmp_path, "step,kl,acc\n#,nats,%\n1,0.1,0.5\n2,0.1,1\n")[0] == ["1", "0.1", "0.5"]  # shares


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,reward,kl,status\na,n.d.,n.d.,failed\nb,0.1,0.1,ok\nc,0.2,0.3,ok\n", "reward: got 'n.d.'"),
        ("step,reward,kl\npre-training,baseline,\n1,0.1,0.01\n", "reward: got 'baseline'"),
    ],
)
def test_words_that_are_no_units_are_told_with_their_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        read(tmp_path, text)
    assert refused.value.line == 2


def test_words_among_steps_are_no_totals_unless_they_end_the_table(tmp_path: Path) -> None:
    kept = cells(tmp_path, "step,reward\n1,0.5\nsaved,\n2,0.5\nmean,0.5\n")
    assert len(kept) == 4
    assert len(cells(tmp_path, "step,reward\n1,0.5\nrun 2,0.5\n")) == 2
    assert len(cells(tmp_path, "step,reward\n1,0.5\nnan,0.5\n")) == 2
    assert len(cells(tmp_path, "step,reward\n1,0.5\n,0.5\n")) == 2
    assert len(cells(tmp_path, "name,reward\n1,0.5\nmean,0.5\n")) == 2
    assert len(cells(tmp_path, "step,reward\nmean,0.5\nmax,0.5\n")) == 2  # nothing would be left
    assert len(cells(tmp_path, "step,reward\n1.5,0.5\nmax,0.5\n")) == 2


def test_columns_without_name_and_cells_are_none(tmp_path: Path) -> None:
    found = read(tmp_path, "step,reward,,\n1,0.5,,\n2,0.25,,\n")
    assert [row["reward/mean"] for row in found.case.rows] == [0.5, 0.25]
    with pytest.raises(SpecError, match="two columns called ''"):
        read(tmp_path, "step,reward,,\n1,0.5,x,\n2,0.25,,y\n")
    with pytest.raises(SpecError, match="no column is known"):
        read(tmp_path, "step,\n1,\n")


def test_a_column_for_each_step_is_turned_round(tmp_path: Path) -> None:
    found = read(tmp_path, "step,10,20,30\nreward,0.5,0.25,0.75\npass@1 (dev),,0.5,\nwarmth,1,2,3\n")
    told = [(row["step"], row["reward/mean"], row.get("eval/reward")) for row in found.case.rows]
    assert told == [(10, 0.5, None), (20, 0.25, 0.5), (30, 0.75, None)]
    assert "the table has a column for each step: it is turned round" in found.notes
    assert any("columns left out (warmth)" in note for note in found.notes)
    worded = read(tmp_path, "metric,step 5,step 7\nreward,0.5,0.25\n")
    assert [(row["step"], row["reward/mean"]) for row in worded.case.rows] == [(5, 0.5), (7, 0.25)]
    indexed = ",0,1,2\nstep,10,20,30\nreward,0.5,0.25,0.75\n"
    assert [row["step"] for row in read(tmp_path, indexed).case.rows] == [10, 20, 30]
    assert has_known_header(Source(name="table.csv", path=written(tmp_path, indexed)))


@pytest.mark.parametrize(
    "text",
    [
        "step,10\nreward,0.5\n",  # one column may be called anything
        "step,10,b\nreward,0.5,1\n",
        "a,10,20\nwarmth,0.5,1\n",
        "reward,10,20\nkl,0.5,1\n",
        "step,10,10.0\nreward,0.5,1\n",
    ],
)
def test_what_is_not_turned_round(text: str, tmp_path: Path) -> None:
    assert read_table(written(tmp_path, text), []).header == text.splitlines()[0].split(",")


def test_a_metric_of_two_rows_is_told_twice(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="two columns called 'reward'"):
        read(tmp_path, "step,10,20\nreward,0.5,0.25\nreward,0.5,0.25\n")
