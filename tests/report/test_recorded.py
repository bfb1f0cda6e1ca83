"""Tables of benchmark records hold what the records hold."""

import json
import re
from pathlib import Path

import pytest

import looptaps as lt
from looptaps.report.recorded import LAYOUTS, record_tables

RESULTS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("*.json"))
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")


def numbers(value):
    """Every number in a record's figures."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, int | float):
        yield float(value)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_number_of_a_table_is_in_its_record(path):
    record = json.loads(path.read_text())
    assert path.stem in LAYOUTS
    known = list(numbers(record["figures"]))
    tables = record_tables(path)
    assert tables
    assert tables[-1].caption.endswith(f"{record['finished'][:10]}.")
    for table in tables:
        assert table.rows
        for row in table.rows:
            assert len(row) == len(table.columns)
            for cell in row[1:]:
                for word in NUMBER.findall(cell):
                    digits = len(word.partition(".")[2])
                    shown = float(word.replace(",", ""))
                    assert any(abs(value - shown) <= 0.5001 * 10**-digits for value in known), (row[0], cell)


def test_a_rule_that_never_gets_there_and_an_open_interval_are_said(tmp_path):
    share = {"percent": 50.0, "interval_95": [40.0, 60.0]}
    pair = {"points": -1.0, "interval_95": [-2.0, 0.0], "p": 0.5}
    row = {"terminal": share, "terminal_against_unit": pair, "mean_eta": 1.0,
           "updates_to_reach": {"50": {"reached": True, "mean": 48.0, "interval_95": [48.0, None]},
                                "100": {"reached": False}}}
    targets = {"50": {"accuracy": share}, "100": {"accuracy": share}}
    record = {"name": "fixed_point", "measured": "How.", "device": {"name": "cpu", "threads": 1}, "commit": None,
              "finished": "2026-01-01T00:00:00Z", "figures": {"targets": targets, "methods": {"unit": row}}}
    (tmp_path / "fixed_point.json").write_text(json.dumps(record))
    (table,) = record_tables(tmp_path / "fixed_point.json")
    assert table.rows == (("unit", "48.0 [48.0, ?]", "N/R", "50.0 [40.0, 60.0]", "-1.00 [-2.00, +0.00]", "1.000"),)
    assert table.caption == "How. cpu, 1 thread; commit unknown; 2026-01-01."


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "rollouts", "figures": {}}'])
def test_what_is_no_record_is_refused(tmp_path, text):
    (tmp_path / "rollouts.json").write_text(text)
    with pytest.raises(lt.errors.InvalidFile, match="with the script in benchmarks/ of its name"):
        record_tables(tmp_path / "rollouts.json")
