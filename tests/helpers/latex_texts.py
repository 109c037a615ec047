"""LaTeX taken apart, as far as tests of tables need it."""

import re


def latex_rows(text: str) -> list[list[str]]:
    """Cells of each line of the bodies of all ``tabular`` environments, heads included; checks that all rows fit."""
    rows = []
    text = re.sub(r"@\{\\hspace\{\w+\}\}", "", text)
    for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line.removesuffix(r"\\").strip() for line in body.splitlines() if line.endswith(r"\\")]
        for line in lines:
            cells = re.split(r"(?<!\\)&", line)
            spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in cells]
            assert sum(int(span[1]) if span else 1 for span in spans) == len(columns), line
            rows.append([cell.strip() for cell in cells])
    return rows


def well_formed(text: str) -> bool:
    """Whether braces and environments are closed in order, outside of comments and escapes."""
    text = re.sub(r"\\[\\{}%]", "", re.sub(r"(?m)^%.*$", "", text))
    depth, open_environments = 0, []
    for token in re.findall(r"\\(?:begin|end)\{\w+\}|[{}]", text):
        if token in "{}":
            depth += 1 if token == "{" else -1
        elif token.startswith(r"\begin"):
            open_environments.append(token[6:])
        elif not open_environments or open_environments.pop() != token[4:]:
            return False
        if depth < 0:
            return False
    return depth == 0 and not open_environments
