"""Numbers by hand, and what is missing is seen."""

import csv
import dataclasses
import io
import math
import re

import pytest

from experiments.reproduce import published, tables
from experiments.reproduce.markup import (
    RENDERERS,
    Cell,
    Table,
    render_csv,
    render_latex,
    render_markdown,
)
from experiments.reproduce.records import Record, paired_difference, select, summarise
from tests.experiments.reproduce.synthetic import NO_SCORES, PLAIN, everything, record, runs


def row(table: Table, *start: str) -> dict[str, Cell]:
    """The only row that starts with these texts, by column."""
    found = [r for r in table.rows if [cell.text for cell in r[: len(start)]] == list(start)]
    assert len(found) == 1, f"{len(found)} rows start with {start}"
    return dict(zip(table.columns, found[0], strict=True))


class TestRecords:
    def test_a_record_that_lacks_fields_names_them_and_the_run(self):
        line = {name: value for name, value in PLAIN.items() if name not in ("test", "split")}
        with pytest.raises(ValueError, match=r"lacks split, test; .*graph=cora.*seed=0"):
            Record.from_json(line)

    def test_what_may_be_none_may_be_left_out_and_unknown_fields_are_left_aside(self):
        optional = ("at", "kind", "commit", "peak_bytes", "hop_weights", "gates", "config")
        line = {name: value for name, value in PLAIN.items() if name not in optional}
        found = Record.from_json({**line, "written_at": "noon"})
        assert found.gates is None
        assert found.config == {}

    def test_a_score_in_percent_is_refused(self):
        with pytest.raises(ValueError, match=r"from 0 to 1, got 88\.2 .*cora, STAGNN, seed 0"):
            record(test=88.2)

    def test_of_a_run_done_twice_the_later_counts(self):
        assert [r.test for r in select([record(test=0.1), record(test=0.2)], "table1")] == [0.2]

    def test_the_variant_is_part_of_the_name_unless_it_repeats_the_place(self):
        assert record(variant="K=10", at=10).label == "STAGNN"
        assert record(variant="edges added 0.2", at=0.2, kind="edges added").label == "STAGNN"
        assert record(variant="no gate").label == "STAGNN, no gate"

    def test_different_splits_have_no_common_mean(self):
        with pytest.raises(ValueError, match=r"different splits \(A, B\)"):
            summarise([record(split="A"), record(split="B", seed=1)])


class TestNumbers:
    def test_mean_and_sample_deviation(self):
        # 80, 82, 87: mean 83, squares 9 + 1 + 16 = 26, over two: 13.
        found = summarise(runs([0.80, 0.82, 0.87]))
        assert found.mean == pytest.approx(0.83)
        assert found.std == pytest.approx(math.sqrt(13) / 100)
        cell = row(tables.table1(runs([0.80, 0.82, 0.87])), "STAGNN", "ours")["Cora"]
        assert cell.text == "83.00 (3.61), 3 of 5 runs"

    def test_paired_difference_and_its_standard_error(self):
        # Seeds 0, 1, 2: 2, 4, 0 points; mean 2, deviation 2, error 2 / sqrt(3). Seed 3 has no pair.
        ours = runs([0.82, 0.84, 0.80, 0.99])
        other = runs([0.80, 0.80, 0.80], model="GCN")
        found = paired_difference(ours, other)
        assert found is not None
        assert (found.mean, found.pairs) == (pytest.approx(0.02), 3)
        assert found.error == pytest.approx(0.02 / math.sqrt(3))
        shown = row(tables.paired(ours + other), "Cora", "GCN")
        assert [cell.text for cell in shown.values()][2:] == ["+2.00", "1.15", "3 of 5", "yes"]

    def test_a_difference_beyond_two_errors(self):
        records = runs([0.85, 0.86, 0.87]) + runs([0.80, 0.80, 0.80], model="GCN")
        shown = row(tables.paired(records), "Cora", "GCN")
        # 5, 6, 7 points: mean 6, error 1 / sqrt(3); three pairs where the paper has five runs.
        assert [cell.text for cell in shown.values()][2:] == ["+6.00", "0.58", "3 of 5", "no"]

    def test_the_same_seed_on_another_split_is_no_pair(self):
        assert paired_difference([record(split="A")], [record(split="B", model="GCN")]) is None

    def test_one_pair_says_nothing(self):
        shown = row(tables.paired([record(), record(model="GCN")]), "Cora", "GCN")
        assert shown["standard error"].text == "-"
        assert shown["within two standard errors"].text == "one pair says nothing"

    def test_peak_memory_is_the_median_of_the_runs(self):
        deep = {"experiment": "deep", "at": 10, "variant": "K=10"}
        records = [
            record(peak_bytes=peak, seed=peak, **deep) for peak in (9_000_000, 2_500_000, 2_400_000)
        ]
        shown = row(tables.deep(records), "Cora", "STAGNN", "peak MB")
        assert shown["K=10"].text == "2.5"


class TestTable1:
    def test_the_best_of_ours_is_bold_and_the_best_published(self):
        table = tables.table1(runs([0.8] * 5) + runs([0.7] * 5, model="GCN"))
        assert row(table, "STAGNN", "ours")["Cora"].bold
        assert not row(table, "GCN", "ours")["Cora"].bold
        assert row(table, "STAGNN", "published")["Pubmed"].bold
        assert row(table, "NAGphormer", "published")["Physics"].bold

    def test_published_numbers_are_marked_and_out_of_memory_is_kept(self):
        table = tables.table1([])
        assert row(table, "SAN", "published")["Physics"].text == "OOM"
        rerun = row(table, "STAGNN", "released program, 3 runs")
        assert rerun["Deezer (AUC)"].text == "73.68 (0.48)"
        assert any("NeurIPS 2023, Table 1" in note for note in table.notes)

    def test_missing_runs_and_graphs_are_shown(self):
        shown = row(tables.table1(runs([0.9] * 3, graph="pubmed", split="B")), "STAGNN", "ours")
        assert shown["Pubmed"].text == "90.00 (0.00), 3 of 10 runs"
        assert shown["Cora"].text == "no runs"
        one = row(tables.table1([record()]), "STAGNN", "ours")
        assert one["Cora"].text == "80.00, 1 of 5 runs"

    def test_more_runs_than_planned_are_said_too(self):
        assert row(tables.table1(runs([0.9] * 6)), "STAGNN", "ours")["Cora"].text.endswith("6 runs")

    def test_corafull_says_that_its_file_is_not_there(self):
        for table in (tables.table1([]), tables.table2([]), tables.table3([])):
            assert any("CoraFull: its file" in note for note in table.notes)
            ours = [r for r in table.rows if r[1].text == "ours"]
            assert ours
            place = table.columns.index("CoraFull")
            assert {r[place].text for r in ours} == {"file not there"}
        assert row(tables.paired([]), "CoraFull")["difference"].text == "file not there"

    def test_corafull_with_runs_says_nothing_of_the_kind(self):
        table = tables.table1(runs([0.7] * 10, graph="corafull", split="B"))
        assert row(table, "STAGNN", "ours")["CoraFull"].text == "70.00 (0.00)"
        assert not any("CoraFull" in note for note in table.notes)

    def test_a_variant_of_a_model_is_a_row_of_its_own(self):
        table = tables.table1([record(), record(variant="no gate", test=0.5)])
        assert row(table, "STAGNN, no gate", "ours")["Cora"].mean == pytest.approx(50)
        assert row(table, "STAGNN", "ours")["Cora"].mean == pytest.approx(80)

    def test_baselines_with_half_the_runs_say_so_and_are_compared_on_common_splits(self):
        pubmed = {"graph": "pubmed", "split": "B"}
        ours = runs([0.8] * 5 + [0.9] * 5, **pubmed)
        records = ours + runs([0.7] * 5, model="GCN", **pubmed)
        table = tables.table1(records)
        assert row(table, "GCN", "ours")["Pubmed"].text == "70.00 (0.00), 5 of 10 runs"
        assert row(table, "STAGNN", "ours")["Pubmed"].text == "85.00 (5.27)"
        assert any("fewer runs" in note for note in table.notes)
        assert not any("fewer runs" in note for note in tables.table1(ours).notes)
        shown = row(tables.paired(records), "Pubmed", "GCN")
        assert (shown["difference"].text, shown["pairs"].text) == ("+10.00", "5 of 10")

    def test_lines_part_models_with_several_rows(self):
        table = tables.table1([record(), record(model="GCN")])
        assert [cell.text for cell in table.rows[2][:2]] == ["GAT", "published"]
        last = len(table.rows) - 3
        assert table.rows[last][0].text == "STAGNN"
        assert table.rules == (2, last)

    def test_a_published_row_covers_the_six_graphs(self):
        for source in (published.TABLE1, published.TABLE2, published.TABLE3):
            assert all(tuple(scores) == published.GRAPHS_B for scores in source.rows.values())


class TestDivergedRuns:
    @pytest.fixture
    def records(self) -> list[Record]:
        """Of five runs, seed 3 diverged after a while, seed 4 at once."""
        return [
            *runs([0.8, 0.8, 0.8]),
            record(seed=3, test=0.6, diverged=50),
            record(seed=4, diverged=1, **NO_SCORES),
        ]

    def test_only_a_diverged_run_may_be_without_scores(self):
        assert record(diverged=1, **NO_SCORES).test is None
        with pytest.raises(ValueError, match="lacks val, test, best_epoch"):
            record(**NO_SCORES)

    def test_they_are_marked_and_those_without_a_score_are_in_no_mean(self, records):
        table = tables.table1(records)
        cell = row(table, "STAGNN", "ours")["Cora"]
        assert cell.text == "75.00 (10.00), 2 of 5 runs diverged, 1 without a score"
        assert cell.runs == 4
        assert any(note.startswith("2 of 5 runs diverged") for note in table.notes)
        assert not any("diverged" in note for note in tables.table1(runs([0.8])).notes)

    def test_without_any_score_there_is_a_dash(self):
        lost = [record(seed=seed, diverged=1, **NO_SCORES) for seed in range(5)]
        table = tables.table1(lost + runs([0.8] * 5, model="GCN"))
        cell = row(table, "STAGNN", "ours")["Cora"]
        assert cell.text == "-, 5 of 5 runs diverged, 5 without a score"
        assert cell.mean is None
        shown = row(tables.paired(lost + runs([0.8] * 5, model="GCN")), "Cora", "GCN")
        assert shown["pairs"].text == "0"

    def test_pairs_leave_out_what_has_no_score(self, records):
        found = paired_difference(records, runs([0.7] * 5, model="GCN"))
        assert found is not None
        assert (found.pairs, found.mean) == (4, pytest.approx(0.05))

    @pytest.mark.parametrize("name", tables.TABLES)
    def test_every_table_copes(self, name):
        lost = [dataclasses.replace(r, diverged=1, **NO_SCORES) for r in everything()]
        for written in RENDERERS.values():
            assert "diverged" in written(tables.TABLES[name](lost)) or written is render_csv


class TestOtherTables:
    def test_table2_takes_gat_from_table1(self):
        pubmed = {"graph": "pubmed", "split": "B"}
        records = runs([0.86] * 10, model="GAT", **pubmed)
        records += runs([0.9] * 10, experiment="table2", variant="1 hop + GA", at=1, **pubmed)
        table = tables.table2(records)
        assert row(table, "GAT", "ours")["Pubmed"].text == "86.00 (0.00)"
        assert row(table, "1 hop + GA", "ours")["Pubmed"].bold
        assert row(table, "GA only", "ours")["Pubmed"].text == "no runs"
        assert "Runs of Table 1 stand in for: GAT." in table.notes

    def test_table3_prefers_its_own_runs(self):
        pubmed = {"graph": "pubmed", "split": "B"}
        records = runs([0.1] * 10, **pubmed)
        records += runs([0.9] * 10, experiment="table3", variant="gate softmax", **pubmed)
        shown = row(tables.table3(records), "STAGNN (gate with softmax)", "ours")
        assert shown["Pubmed"].text == "90.00 (0.00)"

    def test_hops_shows_every_way_and_any_other(self):
        records = runs([0.8] * 5, experiment="hops", variant="GPR")
        records += runs([0.7] * 5, experiment="hops", variant="max")
        table = tables.hops(records)
        assert table.columns == ("graph", "GPR", "sum", "concat", "attention", "max")
        assert row(table, "Cora")["GPR"].bold
        assert row(table, "Cora")["sum"].text == "no runs"
        assert row(table, "Actor")["GPR"].text == "no runs"

    def test_deep_shows_a_missing_depth(self):
        records = [record(experiment="deep", at=K, variant=f"K={K}") for K in (3, 10)]
        records += [record(experiment="deep", at=3, variant="K=3", model="GCN")]
        table = tables.deep(records)
        assert row(table, "Cora", "GCN", "score")["K=10"].text == "no runs"
        assert row(table, "Actor", "STAGNN", "score")["K=3"].text == "no runs"

    def test_runs_on_the_untouched_graph_start_every_kind(self):
        records = [record(experiment="robustness", at=0.0, test=0.9)]
        for kind in ("noisy features", "edges added"):
            records.append(record(experiment="robustness", kind=kind, at=0.2, test=0.7))
        table = tables.robustness(records)
        assert [r[1].text for r in table.rows] == ["edges added", "noisy features"]
        assert {r[3].text for r in table.rows} == {"90.00, 1 of 5 runs"}
        assert any("3 runs" in note for note in table.notes)

    @pytest.mark.parametrize("name", tables.TABLES)
    def test_without_records_a_table_says_so(self, name):
        table = tables.TABLES[name]([])
        assert any(cell.text == "no runs" for r in table.rows for cell in r)


def test_a_tuned_setting_is_chosen_by_validation_in_every_run():
    def gcn(seed: int, decay: str, **more: object) -> Record:
        return record(model="GCN", seed=seed, variant=f"weight decay {decay}", **more)

    made = [
        gcn(0, "0.0005", val=0.7, test=0.9),
        gcn(0, "0", val=0.8, test=0.6),
        gcn(1, "0.0005", val=0.5, test=0.5),
        gcn(1, "0", diverged=1, **NO_SCORES),
        record(variant="other"),
    ]
    found = select(made, "table1")
    assert [(run.seed, run.variant, run.test) for run in found[:2]] == [(0, "", 0.6), (1, "", 0.5)]
    assert found[2].variant == "other"
    assert row(tables.table1(made), "GCN", "ours")["Cora"].text == "55.00 (7.07), 2 of 5 runs"


class TestMarkup:
    @pytest.fixture(params=list(tables.TABLES))
    def table(self, request) -> Table:
        return tables.TABLES[request.param](everything())

    def test_markdown_has_a_cell_for_each_column(self, table):
        lines = [line for line in render_markdown(table).splitlines() if line[:1] == "|"]
        assert len(lines) == len(table.rows) + 2
        assert {line.count("|") for line in lines} == {len(table.columns) + 1}

    def test_latex_is_balanced(self, table):
        text = render_latex(table)
        bare = re.sub(r"\\[{}]", "", text)
        assert bare.count("{") == bare.count("}")
        assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text)[::-1]
        body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(rows) == len(table.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(table.columns) - 1}

    def test_latex_escapes_what_it_would_take_for_commands(self):
        odd = Table("odd", "50 % of a_b & {c}", ("$x$",), ((Cell("a\\b #1 ~ ^", bold=True),),))
        text = render_latex(odd)
        assert r"\caption{50 \% of a\_b \& \{c\}}" in text
        assert r"\$x\$ \\" in text
        assert r"\textbf{a\textbackslash{}b \#1 \textasciitilde{} \textasciicircum{}}" in text

    def test_csv_parses_back(self, table):
        lines = list(csv.DictReader(io.StringIO(render_csv(table))))
        assert len(lines) == len(table.rows)
        for line, cells in zip(lines, table.rows, strict=True):
            for column, cell in zip(table.columns, cells, strict=True):
                if cell.mean is None:
                    assert line[column] == cell.text
                else:
                    assert float(line[column]) == pytest.approx(cell.mean, rel=1e-5)
                    assert line[f"{column} runs"] == ("" if cell.runs is None else str(cell.runs))

    def test_a_row_of_the_wrong_length_is_refused(self):
        with pytest.raises(ValueError, match="row 0 of 'odd' has 1 cells for 2 columns"):
            Table("odd", "", ("a", "b"), ((Cell("1"),),))
