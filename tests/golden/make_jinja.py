#!/usr/bin/env python3
"""Writes jinja.json: small templates with what jinja2 makes of them, in the environment of transformers.

usage: .deps/peers/bin/python tests/golden/make_jinja.py
"""
import json
import pathlib
import re

from jinja_cases import VARIABLES, cases
from transformers.utils.chat_template_utils import _cached_compile_jinja_template, _render_with_assistant_indices


def expected(template):
    try:
        compiled = _cached_compile_jinja_template(template)
        variables = dict(VARIABLES)
        text, spans = _render_with_assistant_indices(
            compiled, variables.pop("messages"), None, None, False, **variables
        )
        text.encode()
        return {"text": text, "spans": [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    lines = []
    for template in cases():
        case = {"template": template, **expected(template)}
        # Addresses, and texts of functions, are of no use to anybody.
        if re.search(r"0x[0-9a-f]{6}|<(bound|built-in|function|class|jinja2|generator)", case.get("text", "")):
            continue
        lines.append(json.dumps({key: value for key, value in case.items() if value != []}))
    head = '{"variables": ' + json.dumps(VARIABLES) + ',\n"cases": [\n'
    path = pathlib.Path(__file__).parent / "jinja.json"
    path.write_text(head + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(len(lines), "cases,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
