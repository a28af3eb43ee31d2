"""What the chat page makes of markdown, in a browser that has the page open: structure, and that nothing in it ever counts as HTML."""
import json
import random

LINK = ' target="_blank" rel="noopener noreferrer nofollow"'


def anchor(address, words):
    return f'<a href="{address}"{LINK} title="{address}">{words}</a>'


CASES = [
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# a\n###### f ##\n####### g", '<h3 class="level1">a</h3><h6 class="level6">f</h6><p>####### g</p>'),
    ("#no heading", "<p>#no heading</p>"),
    ("**a** *b* ***c*** __d__ _e_ ~~f~~", "<p><strong>a</strong> <em>b</em> <em><strong>c</strong></em> <strong>d</strong> <em>e</em> <s>f</s></p>"),
    ("2 * 3 * 4, snake_case_name, ~5", "<p>2 * 3 * 4, snake_case_name, ~5</p>"),
    ("**a *b* c** **open", "<p><strong>a <em>b</em> c</strong> **open</p>"),
    ("*a **b* c**", "<p><em>a <em><em>b</em> c</em></em></p>"),
    ("**强调：**文字", "<p><strong>强调：</strong>文字</p>"),
    (r"\*a\* \`b\` \\", r"<p>*a* `b` \</p>"),
    ("`a` ``b`c`` `d", "<p><code>a</code> <code>b`c</code> `d</p>"),
    ("`**a** <b>`", "<p><code>**a** &lt;b&gt;</code></p>"),
    ("&lt;b&gt; &amp; &copy;", "<p>&lt;b&gt; &amp; &amp;copy;</p>"),
    ("a<br>b<br/>c", "<p>a<br>b<br>c</p>"),
    ("[a](https://a.example/x?y=1)", f"<p>{anchor('https://a.example/x?y=1', 'a')}</p>"),
    ('[**a** b](<https://a.example/x y> "title")', f"<p>{anchor('https://a.example/x%20y', '<strong>a</strong> b')}</p>"),
    ("[a](https://a.example/p_(q))", f"<p>{anchor('https://a.example/p_(q)', 'a')}</p>"),
    ("see https://a.example/p_(q).", f"<p>see {anchor('https://a.example/p_(q)', 'https://a.example/p_(q)')}.</p>"),
    ("(https://a.example/), **https://b.example**", f"<p>({anchor('https://a.example/', 'https://a.example/')}), <strong>{anchor('https://b.example/', 'https://b.example')}</strong></p>"),
    ("<https://a.example/> <mailto:a@b.example>", f"<p>{anchor('https://a.example/', 'https://a.example/')} {anchor('mailto:a@b.example', 'mailto:a@b.example')}</p>"),
    ("![a picture](https://a.example/p.png)", f"<p>{anchor('https://a.example/p.png', 'picture: a picture')}</p>"),
    ("[a](javascript:alert(1)) [b](data:text/html,x) [c](/v1/models) [d](//a.example)", "<p>[a](javascript:alert(1)) [b](data:text/html,x) [c](/v1/models) [d](//a.example)</p>"),
    ("<javascript:alert(1)>", "<p>&lt;javascript:alert(1)&gt;</p>"),
    ("[a] [b][c] [d](", "<p>[a] [b][c] [d](</p>"),
    ("- a\n- b\n  - c\n\n    d\n- e", "<ul><li><span>a</span></li><li><span>b</span><ul><li><p>c</p><p>d</p></li></ul></li><li><span>e</span></li></ul>"),
    ("1. a\n  - b\n2. c", "<ol><li><span>a</span><ul><li><span>b</span></li></ul></li><li><span>c</span></li></ol>"),
    ("3) a\n4) b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'),
    ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("- a\nlazy\n\nafter", "<ul><li><span>a<br>lazy</span></li></ul><p>after</p>"),
    ("* a\n- b", "<ul><li><span>a</span></li></ul><ul><li><span>b</span></li></ul>"),
    ("- [x] a\n- [ ] b", '<ul><li class="task"><span role="img" aria-label="done">☑ </span><span>a</span></li><li class="task"><span role="img" aria-label="to do">☐ </span><span>b</span></li></ul>'),
    ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"),
    ("a\n***\nb\n---", "<p>a</p><hr><p>b</p><hr>"),
    ("text\n| a | b |\n|:-:|--:|\n| 1 | `x\\|y` |\n| 2 |", '<p>text</p><div class="scroll" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th class="center" scope="col">a</th><th class="right" scope="col">b</th></tr></thead>'
     '<tbody><tr><td class="center">1</td><td class="right"><code>x|y</code></td></tr><tr><td class="center">2</td><td class="right"></td></tr></tbody></table></div>'),
    ("a | b\nno table", "<p>a | b<br>no table</p>"),
]

CODE = "[...root.querySelectorAll('.code')].map((one) => [one.querySelector('figcaption span').textContent, one.querySelector('code').textContent])"
FENCES = [
    ("```c++\nint a = 1;\n\n  <b>\n```\nafter", [["c++", "int a = 1;\n\n  <b>"]]),
    ("~~~~\n```\n~~~\n~~~~", [["code", "```\n~~~"]]),
    ("```\nno end\n# still code", [["code", "no end\n# still code"]]),
    ("- a\n  ```\n  b\n    c\n  ```", [["code", "b\n  c"]]),
    ("> ```\n> a\n> ```", [["code", "a"]]),
    ("1. a\n\n\t```py\n\tif b:\n\t\tc\n\t```", [["py", "if b:\n\tc"]]),
]

HELPERS = """
window.fresh = () => document.createElement('div');
window.shown = (text) => { const root = fresh(); showMarkdown(root, text); return root; };
window.grown = (text, step) => { const root = fresh(); for (let i = step; i < text.length + step; i += step) showMarkdown(root, text.slice(0, i)); return root; };
window.allowed = { A: ['href', 'target', 'rel', 'title'], P: [], BR: [], EM: [], STRONG: [], S: [], CODE: [], HR: [], UL: [], OL: ['start'], LI: ['class'], BLOCKQUOTE: [], H3: ['class'], H4: ['class'], H5: ['class'], H6: ['class'],
  SPAN: ['role', 'aria-label'], DIV: ['class', 'tabindex', 'role', 'aria-label'], TABLE: [], THEAD: [], TBODY: [], TR: [], TH: ['class', 'scope'], TD: ['class'], FIGURE: ['class'], FIGCAPTION: [], PRE: ['tabindex', 'role', 'aria-label'],
  BUTTON: ['type', 'class', 'aria-label'] };
window.wrongIn = (root) => [...root.querySelectorAll('*')].flatMap((one) => [
  ...(one.tagName in allowed ? [] : [one.tagName]), ...[...one.attributes].filter((a) => !(allowed[one.tagName] ?? []).includes(a.name)).map((a) => `${one.tagName} ${a.name}`),
  ...(one.href !== undefined && !/^(https?|mailto):/.test(one.href) ? [one.href] : [])]);
"""

PIECES = ["*", "**", "_", "~~", "`", "``", "```", "\n", "\n\n", "[", "]", "](", "(", ")", "!", "<", ">", "<br>", "https://a.example/", "javascript:alert(1)", "<img src=x onerror=1>", "<script>",
          "- ", "1. ", "> ", "    ", "\t", "# ", "|", "|-|-|\n", "a", "word ", "é", "字", "\\", "&lt;", "&", '"', "'", "~~~", "---", "\u202e", "\u0000", "data:text/html,x", "[x](", "<https://b.example"]

# A model that repeats itself must not hang the page.
ENDLESS = ["*", "**a ", "_a ", "[", "[a](", "![", "`", "`a``", "<", "https://", "> ", "- ", "1. ", "|", "| a ", "a|-", "# ", " ", "\\", "~~", "&", "(", "[a](<", "*a_", "```\n", "\n>", "\n- ", "a\n|-|\n"]


def check_markdown(page, check):
    page.eval(HELPERS)
    for text, expected in CASES:
        got = page.eval(f"shown({json.dumps(text)}).innerHTML")
        check(f"markdown {text!r}", got == expected, f"\n  {got}\n  {expected}")
    for text, expected in FENCES:
        got = page.eval(f"(() => {{ const root = shown({json.dumps(text)}); return {CODE}; }})()")
        check(f"code in {text!r}", got == expected, str(got))
    whole = "\n\n".join(text for text, _ in CASES + FENCES)
    for step in (1, 7):
        check(f"it is the same when it grows by {step}", page.eval(f"grown({json.dumps(whole)}, {step}).innerHTML === shown({json.dumps(whole)}).innerHTML"))
    check("what is whole stays as it is", page.eval("""(() => { const root = shown('one\\n\\n```\\ncode'), [first, code] = root.children;
        showMarkdown(root, 'one\\n\\n```\\ncode and more\\n```\\n\\nlast'); return root.children[0] === first && root.children[1] === code && root.children.length === 3; })()"""))

    pick = random.Random(20261118)
    texts = ["".join(pick.choice(PIECES) for _ in range(pick.randrange(1, 60))) for _ in range(1500)]
    wrong = page.eval(f"""{json.dumps(texts)}.flatMap((text) => {{
        try {{ const root = shown(text); if (root.innerHTML !== grown(text, 3).innerHTML) return [['grows otherwise', text]]; return wrongIn(root).map((what) => [what, text]); }}
        catch (error) {{ return [[String(error), text]]; }} }}).slice(0, 3)""")
    check("of 1,500 random texts nothing becomes more than it may", not wrong, str(wrong))
    for piece in ENDLESS:
        page.eval(f"shown({json.dumps(piece)}.repeat({30000 // len(piece)})).childNodes.length")
        page.eval(f"shown({json.dumps(piece)}.repeat({18000 // len(piece)})).childNodes.length")
    check("no repetition hangs it", True)
