"""Tables in LaTeX: groups, panels, pages."""

from helpers.latex_texts import latex_rows, well_formed
from helpers.printed_tables import table
from polarvrp.tables.latex import latex_text, to_latex


def test_latex_groups_heads_and_escapes() -> None:
    text = to_latex([table([["CVRP", "!10.0", "2%"], ["Average", "–", "*"]], summary=1)])
    assert r"\caption{Gap of a\_b in \%}" in text
    assert " & \\multicolumn{2}{c}{n=10} \\\\\n\\cmidrule(lr){2-3}\n" in text
    assert (
        "CVRP & \\cellcolor[gray]{0.85} \\textbf{10.0} & 2\\% \\\\\n\\midrule\nAverage & -- & * \\\\\n\\bottomrule"
        in text
    )
    assert well_formed(text)
    assert latex_text("α ≤ 1−x_<1>") == r"$\alpha$ $\le$ 1$-$x\_\textless{}1\textgreater{}"


def test_a_long_table_of_blocks_is_set_in_two_panels() -> None:
    blocks = [[f"V{block}", f"M{row}", "1.0"] for block in range(10) for row in range(12)]
    columns = (("", "Variant"), ("", "Method"), ("n=10", "Obj."))
    text = to_latex([table(blocks, columns, heads=2)])
    assert text.count(r"\begin{table*}[p]") == 1 and r"\tiny" in text and well_formed(text)
    rows = [row for row in latex_rows(text) if row[-1] == "1.0"]
    assert len(rows) == 60 and rows[0] == ["V0", "M0", "1.0", "V5", "M0", "1.0"] and rows[1][0] == rows[1][3] == ""
    assert text.count(r"\cmidrule(lr){1-3}\cmidrule(lr){4-6}") == 4  # whole blocks, five in each panel


def test_a_latex_table_too_long_for_a_page_goes_on_in_another() -> None:
    blocks = [[f"V{block}", f"M{row}", "1.0"] for block in range(30) for row in range(12)]
    columns = (("", "Variant"), ("", "Method"), ("n=10", "Obj."))
    text = to_latex([table(blocks, columns, heads=2)])
    parts = text.split(r"\begin{table*}")[1:]
    assert len(parts) == 2 and all(part.count("max width=") == 1 for part in parts)
    assert [part.count(r"\addtocounter{table}{-1}\caption{Continued.}") for part in parts] == [0, 1]
    bodies = [[row for row in latex_rows(part) if row[2] == "1.0"] for part in parts]
    assert [len(body) for body in bodies] == [108, 72]  # whole blocks, 18 of 30 on the first page
    assert [body[0][::3] for body in bodies] == [["V0", "V9"], ["V18", "V24"]]
    assert well_formed(text)


def test_a_latex_table_too_wide_for_a_page_goes_on_in_another_between_groups() -> None:
    columns = (("", "Variant"), *((f"M{method}", label) for method in range(30) for label in ("Obj.", "Gap")))
    text = to_latex([table([["CVRP", *("1" for _ in range(60))]], columns)])
    heads = [row for row in latex_rows(text) if row[0] == "Variant"]
    assert [len(row) for row in heads] == [31, 31]
    assert all(row[1::2] == ["Obj."] * (len(row) // 2) for row in heads)


def test_narrow_tables_take_one_column_of_two() -> None:
    rows = [["CVRP", "10.0", "2%"]]
    assert r"\begin{table}[p]" in to_latex([table(rows)])
    wide = (("", "Variant"), *((f"M{method}", "Obj.") for method in range(12)))
    assert r"\begin{table*}[p]" in to_latex([table([["CVRP", *(["10.000"] * 12)]], wide)])
