"""Small templates, each for one thing that jinja2 does. A case is a template, or (template, variables)."""

VARIABLES = {
    "a": [1, 2, 3],
    "s": "Hello, Wörld",
    "d": {"x": 1, "y": "two", "items": [1], "_u": 5},
    "n": None,
    "t": True,
    "f": 1.5,
    "i": 7,
    "users": [
        {"name": "Bob", "age": 30, "tags": ["x"]},
        {"name": "alice", "age": 25, "tags": []},
        {"name": "Carol", "age": 30},
    ],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
    "html": "<b>\"x\" & 'y'</b>",
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
}

WHITESPACE = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}  \n  b\n  {% endif %}\nc\n\n",
    "a  {%- if t -%}  b  {%- endif -%}  c",
    "a\n  {%+ if t %}b{% endif +%}\nc",
    "a {{- ' x ' -}} b",
    "{# comment #}\nx{#- strip -#}  y",
    "  {# c #}\n  x",
    "a\n  {#+ c #}\n  x",
    "{% raw %}{{ x }}{% endraw %}",
    "{% raw %}\n {{ x }}\n{% endraw %}\nz",
    "a {%- raw -%}  {{ x }} {%- endraw -%} b",
    "  {% raw %} x {% endraw %} ",
    "a\r\nb\rc\n\n",
    "\n",
    "",
    "{{ 'a\\nb' }}\n",
    "x{% if t %}\n\ny{% endif %}",
    "{% for x in a %}\n  {{ x }}\n{% endfor %}\n",
    "{%- for x in a %}\n  {{- x }}\n{%- endfor %}\n",
    "{{ 1 }}  {% if t %}x{% endif %}  y",
    "\t{% if t %}\tx\t{% endif %}\n",
    "\u00a0{% if t %}x{% endif %}",
    "{{ '{{' }}{{ '}}' }}{{ '%}' }}",
    "{{ {'a': {'b': 1}} }}",
    "{{{'a': 1}}}",
    "{% if t %}a{% else %}\nb{% endif %}{# x\ny #}\nc",
    "{{-1}}",
    "a{{+1}}",
    "a {{ 1 -}}\n\n b",
    "{ {% x",
    "{#",
    "abc{# x",
    "{% raw %}",
    "{% raw %}abc",
    "{%",
    "{{",
    "{{ x",
    "}} %} #}",
    "{% set x = 1 %}\n\n{{ x }}",
    "{% set x = 1 -%}\n\n{{ x }}",
]

EXPRESSIONS = """
1 + 2 * 3 | 7 // 2 | -7 // 2 | -7 % 3 | 7 % -3 | 7 / 2 | 2 ** 3 ** 2 | -2 ** 2 | 2 ** -1 | 7.5 // 2 | -7.5 % 2 | 1e16 | 1e15 | 1.0 | 0.1 + 0.2
1e-5 | 0.0001 | 123456789.123 | 1e22 | 1.5e300 | -0.0 | 10 / 0 | 1 % 0 | 1.0 / 0 | 1_000 | 0x1f | 0b101 | 0o17 | 1_0.5 | 1e5 | 012 | 9223372036854775807
'a' 'b' "c" | 'a' ~ 1 ~ n ~ 1.5 | 'a' + 'b' | 'a' + 1 | 1 + 'a' | 'ab' * 3 | 3 * 'ab' | [1] * 2 | [1] + [2] | [1] + (2,) | (1,) + (2,) | 'a' * -1 | [] + 1
'\\n\\t\\x41\\u00e9\\U0001F600\\101\\q' | 'it\\'s' | "\\"" | '\\é' | '\\
x' | 'a\\x4' | '\\u12'
1 == 1.0 | true == 1 | 'a' == 'a' | [1, 2] == [1, 2.0] | (1,) == [1] | {'a': 1} == {'a': 1.0} | none == none | undefined1 == undefined2 | 1 != 2
1 < 2 < 3 | 1 < 2 > 3 | 'a' < 'b' | 'Z' < 'a' | [1, 2] < [1, 3] | 1 < 'a' | none < 1 | true < 2 | 1 <= 1.0 | 'ä' > 'z' | (1, 2) >= (1,)
1 in a | 9 not in a | 'x' in d | 'ell' in s | '' in s | 1 in 'abc' | 1 in 5 | none in [none] | undefined1 in a | 'x' in undefined1 | not 1 in a
t and i | n or 'x' | not n | not not 1 | n and 1/0 | 1 or 1/0 | 1 if t | 1 if n | 1 if n else 2 | (1 if n) is defined | 1 if t else 2 if n else 3
a[0] | a[-1] | a[5] | a['x'] | a[0:2] | a[::-1] | a[1:] | a[:-1] | a[::2] | a[5:] | a[-2:] | a[2:0:-1] | a[::0] | a['a':] | s[0] | s[8] | s[7:9] | s[::-1] | s[-1]
s[:5] | s[100] | s[1:2:3] | d.x | d['x'] | d.items | d['items'] | d._u | d.zzz | d['zzz'] | d.zzz.y | d.x.y | d[1] | d[[1]] | n.x | n['x'] | i.x | s.x | (1, 2)[1]
undefined1 | undefined1.x | undefined1['x'] | undefined1() | undefined1 + 1 | 1 + undefined1 | 'a' + undefined1 | undefined1 ~ 'a' | undefined1[1:] | -undefined1
undefined1 < 1 | undefined1 | length | undefined1 == 1 | undefined1 is undefined | [undefined1] | {undefined1: 1} | d.zzz | a.append | a.append(1) | d.update({}) | d.pop('x')
s.__class__ | s.__class__.x | a.__len__ | [] | () | (1,) | (1, 2) | {} | {'a': [1, (2, none)], 1: true} | [1, 'a', "it's", 'q"', 'b\\\\', '\\n\\x00\\x7f\\u200b é'] | [1.0, -0.5, 1e20]
{'a': 1, 'a': 2} | {1: 'a', true: 'b', 1.0: 'c'} | {[1]: 2} | {(1, 2): 3}[(1, 2)] | {'a': 1}.a | [[1]][0][0] | [1, 2,] | {'a': 1,} | a.0 | {1: 2}.1 | 'abc'.1
range(5) | range(1, 4) | range(5)[1:3] | range(0, 10, 3) | list | range(3) | range(100001) | range(3, 0, -1) | dict(a=1, b=2) | dict([('a', 1)], b=2) | dict({'a': 1}) | dict(1)
namespace(a=1).a | namespace(a=1) | namespace({'a': 1}, b=2).b | namespace(a=1)['a'] | namespace().x | namespace(items=3).items | joiner() | cycler(1, 2).current | cycler()
true | True | false | False | none | None | nONE | t is true | 1 is true | 0 is false | n is none | i is number | t is number | t is integer | i is integer | f is float | 1.0 is integer
s is string | d is mapping | a is sequence | s is sequence | d is sequence | i is sequence | a is iterable | i is iterable | n is iterable | s is iterable | range is callable | s is callable
i is odd | i is even | i is divisibleby 7 | i is divisibleby(2) | f is odd | s is odd | 'A' is upper | 'a' is lower | '1' is upper | s is lower | i is eq 7 | i is == 7 | i is ne 3 | i is lt 8
i is gt(8) | i is in [7] | 'x' is in d | i is sameas 7 | t is sameas true | 'upper' is filter | 'nope' is filter | 'odd' is test | html is escaped | i is nope | i is not none | i is not odd
i is defined and t | i is eq 7 and t is true | i is in(a) or t | f is ge 1.5 | f is le 1 | a is eq [1, 2, 3] | undefined1 is defined | d.zzz is defined | d.x is defined | i is none is none
-1 | abs | (-1) | abs | 1 - -1 | +1 | +'a' | -'a' | 1 +2 | not 1 == 2 | 1 ~ 2 + 3 | 1 + 2 ~ 3 | 2 * 3 % 4 | 1, 2 | (1, 2), 3 | 'a' % 1 | '%s' % 'a' | '%s-%s' % (1, 2) | '%d' % 3.7
'%5d|%-5d|%05d|%+d' % (1, 2, 3, 4) | '%.2f' % 1.005 | '%e' % 12345.678 | '%g' % 0.00001 | '%x %X %o %#x' % (255, 255, 8, 255) | '%r' % 'a' | '%c%c' % (65, 'b') | '%%' % () | '%s' % [1] | '%s' % n
'%(a)s' % {'a': 1} | '%(b)s' % {'a': 1} | '%s %s' % 1 | '%d' % 'a' | 'abc' % [] | 'abc' % 1 | '%s' % (1, 2) | '%*d' % (5, 1) | '%5s|%-5s|%.2s' % ('a', 'b', 'cde') | '%z' % 1 | '%s' % undefined1 | '%i' % true
'{} {}'.format(1, 'a') | '{0} {1} {0}'.format(1, 2) | '{a} {b}'.format(a=1, b=2) | '{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 3, 'x') | '{:.2f} {:,} {:05d} {:+d}'.format(1.005, 1234567, 42, 5) | '{!r}'.format('a')
'{:x} {:#x} {:b} {:o} {:X}'.format(255, 255, 5, 8, 255) | '{:e} {:g} {:%}'.format(12345.678, 0.00001, 0.25) | '{0[x]} {0[y]}'.format(d) | '{{}}'.format() | '{}'.format() | '{'.format() | '{a}'.format(b=1)
'{:>{}}'.format('a', 5) | '{:d}'.format('a') | '{:.3}'.format('abcdef') | '{} {0}'.format(1) | '{:_}'.format(1234567) | '{:8.3f}|'.format(3.14159) | '{:<8}|'.format(true) | '{}'.format([1, 'a']) | '{:s}'.format(1)
""".strip()

METHODS = """
'  a b '.strip() | '  a '.lstrip() | ' a  '.rstrip() | 'xxaxx'.strip('x') | 'abcba'.strip('ab') | 'a,b,,c'.split(',') | ' a  b '.split() | 'a,b,c'.split(',', 1) | 'a b c'.rsplit(' ', 1)
' a b  c '.split(none, 1) | ' a b  c '.rsplit(none, 1) | 'abc'.split('') | 'a,b'.split(sep=',') | 'aaa'.split('aa') | 'aaa'.rsplit('aa') | 'a\\nb\\r\\nc\\n'.splitlines() | 'a\\nb'.splitlines(true) | ''.split() | ''.split(',') | ''.splitlines()
'abc'.startswith('a') | 'abc'.startswith(('x', 'a')) | 'abc'.endswith('bc') | 'abc'.endswith(['c']) | 'abc'.startswith('b', 1) | 'abc'.startswith(1) | 'abc'.startswith('') | 'abc'.endswith('b', 0, 2)
'aXbX'.replace('X', '-') | 'aXbX'.replace('X', '-', 1) | 'abc'.replace('', '-') | 'abc'.replace('b', n) | 'straße'.upper() | 'ÀÉ'.lower() | "it's a dog".title() | 'hELLO wORLD'.capitalize() | 'ΣΑΣ'.lower() | 'ǆ'.title() | 'ŉ'.upper()
'aB'.swapcase() | 'ß'.casefold() | ','.join(['a', 'b']) | ','.join([1]) | ''.join('abc') | ','.join({'a': 1, 'b': 2}) | 'abcb'.find('b') | 'abcb'.rfind('b') | 'abc'.find('z') | 'abc'.index('z') | 'abcb'.find('b', 2) | 'äbc'.find('c')
'abcb'.count('b') | 'aaa'.count('aa') | 'abc'.count('') | '12'.isdigit() | '²'.isdigit() | '²'.isdecimal() | '½'.isnumeric() | 'aä'.isalpha() | 'a1'.isalnum() | ' \\n'.isspace() | ''.isspace() | 'AB'.isupper() | 'aB'.islower() | 'Ab Cd'.istitle()
'42'.zfill(5) | '-42'.zfill(5) | 'a'.center(4) | 'a'.center(5, '*') | 'ab'.center(5) | 'a'.ljust(3) ~ '|' | 'a'.rjust(3, '.') | 'abc'.removeprefix('a') | 'abc'.removesuffix('bc') | 'abc'.removesuffix('') | 'a-b-c'.partition('-') | 'a-b-c'.rpartition('-')
'abc'.partition('x') | 'abc'.rpartition('x') | 'a\\tb'.expandtabs(4) | 'abc'.isidentifier() | '1a'.isidentifier() | 'a'.isprintable() | 'ä'.isascii() | 'abc'.nope() | 'abc'.upper(1) | s.upper | length | 'a'.encode
d.keys() | d.values() | d.items() | d.keys() | list | d.get('x') | d.get('q') | d.get('q', 5) | d.get() | d.copy() | d.items() | list | first | d.items() | length | d.items()[0] | 'x' in d.keys() | d.keys() is sequence
a.index(2) | a.index(9) | a.count(1) | a.copy() | (1, 2).index(2) | a.insert(0, 1) | a.sort() | i.bit_length() | f.is_integer() | i.real | a.nope | (1.0).is_integer()
'%s' % s.upper() | s.lower().upper() | 'a'.join | string is string | ' x '.strip().upper()[0] | 'A' ~ 'b'.upper() | s.split(', ')[1] | s.split(', ') | last | s.split(', ') | map('upper') | join('-')
""".strip()

FILTERS = """
' a ' | trim | 'xax' | trim('x') | n | trim | a | length | s | length | d | count | i | length | undefined1 | default('x') | n | default('x') | n | default('x', true) | '' | d('x', boolean=true) | undefined1 | default
a | join(', ') | a | join | users | join(', ', attribute='name') | 'abc' | join('-') | d | join(',') | i | join | a | first | a | last | [] | first | '' | first | [] | last | d | first | d | last | s | last | undefined1 | first
'abc' | list | d | list | i | list | a | string | n | string | '42' | int | '4.7' | int | 'x' | int | 'x' | int(5) | '0x1f' | int(0, 16) | '1f' | int(base=16) | 4.7 | int | n | int | undefined1 | int | '  12 ' | int | '1_000' | int | '' | int
'1.5' | float | 'x' | float | 'inf' | float | n | float(2.5) | '1e3' | float | 3 | float | -5 | abs | -1.5 | abs | 'a' | abs | 42.55 | round | 42.55 | round(1) | 42.55 | round(1, 'floor') | 2.5 | round | 3.5 | round | 1234 | round(-2) | 7 | round | 0.5 | round
2.675 | round(2) | 42.1 | round(0, 'ceil') | 1.5 | round(1, 'x') | s | upper | s | lower | s | capitalize | 'foo bar-baz (qux)' | title | "it's" | title | i | upper | s | replace('l', 'L') | s | replace('l', 'L', 1) | i | replace('7', '8') | n | replace('N', 'x')
a | reverse | list | s | reverse | d | reverse | list | i | reverse | a | reverse | length | [3, 1, 2] | sort | ['b', 'A', 'c'] | sort | ['b', 'A', 'c'] | sort(case_sensitive=true) | [1, 'a'] | sort | [3, 1] | sort(reverse=true) | users | sort(attribute='age') | map(attribute='name') | list
users | sort(attribute='age,name') | map(attribute='name') | join(',') | 'cab' | sort | d | sort | [1, 2, 1, 3] | unique | list | ['a', 'A', 'b'] | unique | list | ['a', 'A'] | unique(true) | list | users | unique(attribute='age') | map(attribute='name') | list
a | map('string') | list | a | map('nope') | list | users | map(attribute='name') | list | users | map(attribute='tags.0') | list | users | map(attribute='tags', default='-') | list | users | map(attribute='zz') | list | a | map | list | [' a '] | map('trim') | list | ['ab'] | map('replace', 'a', 'x') | list
a | select('odd') | list | a | reject('odd') | list | [0, 1, ''] | select | list | a | select('gt', 1) | list | a | select('in', [1, 3]) | list | users | selectattr('age', 'eq', 30) | map(attribute='name') | list | users | selectattr('tags') | list | length | users | rejectattr('tags', 'defined') | list | length
users | selectattr('age', 'equalto', 25) | list | first | users | selectattr('nope') | list | a | select('nope') | list | users | selectattr | list | users | selectattr('age') | length | users | selectattr('age') is iterable | (users | selectattr('nope')) is sequence | 'y' if users | selectattr('nope') else 'n'
a | batch(2) | list | a | batch(2, 0) | list | a | slice(2) | list | a | slice(2, 'x') | list | range(7) | slice(3) | list | a | sum | [] | sum | users | sum(attribute='age') | ['a'] | sum | [1.5, 2] | sum | a | sum(start=10) | a | min | a | max | [] | max | ['b', 'A'] | min | users | max(attribute='age') | s | max
d | items | list | n | items | list | undefined1 | items | list | {'b': 1, 'a': 2} | dictsort | {'b': 1, 'a': 2} | dictsort(by='value') | {'b': 1, 'A': 2} | dictsort | {'b': 1, 'A': 2} | dictsort(true) | {'b': 1, 'a': 2} | dictsort(reverse=true) | d | dictsort | {'b': 1} | dictsort(by='x')
users | groupby('age') | list | length | users | groupby('age') | map(attribute='grouper') | list | users | groupby('name') | map(attribute='list') | map('length') | list | users | groupby('zz', default='q') | length | [{'k': 'A'}, {'k': 'a'}] | groupby('k') | users | groupby('zz')
'a\\nb\\n\\nc' | indent | 'a\\nb\\n\\nc' | indent(2, true) | 'a\\nb\\n\\nc' | indent(2, first=true, blank=true) | 'a\\nb\\n' | indent('> ') | '' | indent | i | indent | 'foo bar baz qux' | truncate(9) | 'foo bar baz qux' | truncate(9, true) | 'foo bar baz qux' | truncate(11, false, '..', 0) | s | truncate(2)
'Hello wörld foo-bar' | wordcount | 'aaa bbb ccc ddd' | wordwrap(7) | 'aaaaaaaaaa' | wordwrap(4) | 'aaaaaaaaaa b' | wordwrap(4, false) | 'a\\nb c' | wordwrap(3) | 'a' | center(5) | html | e | html | escape | html | forceescape | html | safe | (html | e) ~ '<' | (html | e) + '<' | '<' + (html | e) | (html | safe) * 2
html | e | e | html | striptags | 'a b/c&d=é' | urlencode | {'a b': 'c&d', 'x': 1} | urlencode | [('a', 1)] | urlencode | {'class': 'x<', 'id': none, 'b': 1} | xmlattr | {'a b': 1} | xmlattr | '%s %d' | format('a', 1) | '%(a)s' | format(a=1) | 'x' | format(1) | s | attr('upper') is callable | d | attr('x') is defined
1000000 | filesizeformat | 1024 | filesizeformat(true) | 1 | filesizeformat | 999 | filesizeformat | 1500 | filesizeformat | [html | e] | (html | e).upper() | (html | e) is escaped | [1, [2]] | string | a | map('string') | join | s | nope | nope | s | d | tojson
d | tojson | s | tojson | html | tojson | [1, 1.0, 1e20, true, none, 'é\\n\\x00\\x7f"\\\\'] | tojson | d | tojson(indent=2) | [] | tojson(indent=2) | {'a': [], 'b': {}} | tojson(indent=1) | [1, [2, {'a': 3}]] | tojson(indent=4) | 'é😀' | tojson(ensure_ascii=true) | {'b': 1, 'a': 2} | tojson(sort_keys=true)
[1, 2] | tojson(separators=(',', ':')) | {'a': 1} | tojson(separators=[',', ':']) | {1: 2, none: 3, true: 4, 1.5: 5} | tojson | undefined1 | tojson | range(3) | tojson | (1, 2) | tojson | namespace() | tojson | d.items() | tojson | d | tojson(indent='--') | d | tojson(1) | s | tojson(false, 2)
""".strip()

STATEMENTS = [
    "{% for x in a %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in a %}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }} {% endfor %}",
    "{% for x in a %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in undefined1 %}x{% else %}none{% endfor %}",
    "{% for x in n %}x{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for x, y in [(1, 2), [3, 4]] %}{{ x + y }} {% endfor %}",
    "{% for x, (y, z) in [(1, (2, 3))] %}{{ x }}{{ y }}{{ z }}{% endfor %}",
    "{% for x, y in [1] %}{% endfor %}",
    "{% for x, in [[1]] %}{{ x }}{% endfor %}",
    "{{ range(5)[1::3] }}{{ 'a' % range(2) }}{{ '7'|int(0, 'x') }}",
    "{% for x, y in [(1, 2, 3)] %}{% endfor %}",
    "{% for x in a if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{% else %}e{% endfor %}",
    "{% for x in a if x > 5 %}{{ x }}{% else %}e{% endfor %}",
    "{% for x in a if loop.index > 1 %}{{ x }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in a if not ns.stop %}{{ x }}{% set ns.stop = x == 2 %}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in a if not ns.stop %}{{ x }}{{ loop.last }}{% set ns.stop = x == 1 %}{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in a %}{% for y in a %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in a %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in a %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in a %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in a %}{% if x < 3 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in a if x > 2 %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in tree recursive %}{{ x.v }}{% if x.c %}{{ loop(x.c) }}{% continue %}{% endif %}{% else %}E{% endfor %}",
    "{{ a|truncate(5) }}{{ {}|truncate(5) }}",
    "{{ a|truncate(3, leeway=0) }}",
    "{{ range(9)|list|truncate(3) }}",
    "{{ i|truncate(3) }}",
    "{{ '\\x7f\\x80'|tojson(ensure_ascii=true) }}{{ '\\x7f'|tojson }}",
    "{% break %}",
    "{% for x in a %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in a %}{% set y %}{% break %}{% endset %}{% endfor %}{{ y }}",
    "{% for x in tree recursive %}{{ x.v }}({{ loop(x.c) }}){{ loop.depth }}{% endfor %}",
    "{% for x in tree recursive %}{{ loop.index }}{{ x.v }}{% if x.c %}[{{ loop(x.c) }}]{% endif %}{% else %}-{% endfor %}",
    "{% for x in a %}{{ loop(x) }}{% endfor %}",
    "{% for loop in a %}{% endfor %}",
    "{% for x in a %}{% set loop = 1 %}{% endfor %}",
    "{% for x in a %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 9 %}{% for x in a %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 0 %}{% for y in a %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% for y in a %}{{ z }}{% set z = y %}{{ z }}{% endfor %}",
    "{% for y in a %}{{ i }}{% endfor %}{% set i = 1 %}",
    "{{ i }}{% for y in a %}{{ i }}{% endfor %}{% set i = 1 %}{{ i }}",
    "{% if n %}{% set i = 1 %}{% endif %}{{ i }}",
    "{% if t %}{% set i = 1 %}{% endif %}{{ i }}",
    "{% if n %}{% set q = 1 %}{% elif t %}{% set q = 2 %}{% else %}{% set q = 3 %}{% endif %}{{ q }}",
    "{% for y in a %}{% if y == 2 %}{% set i = 'x' %}{% endif %}{{ i }}{% endfor %}{{ i }}",
    "{% if t %}a{% elif 1/0 %}b{% endif %}",
    "{% if n %}a{% elif i %}b{% else %}c{% endif %}",
    "{% if a, b %}x{% endif %}",
    "{% if %}x{% endif %}",
    "{% if t: %}x{% endif %}",
    "{% if t %}x",
    "{% if t %}x{% endfor %}",
    "{% endif %}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}",
    "{% set x, y = 1 %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ i }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}",
    "{% set x %}{% set y = 5 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set ns = namespace(a=1) %}{% for x in a %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x }}{{ ns.y }}",
    "{% set ns = namespace() %}{% set ns.x %}hi{% endset %}{{ ns.x }}",
    "{% set d.x = 1 %}",
    "{% set undefined1.x = 1 %}",
    "{% set a[0] = 1 %}",
    "{% set 1 = 1 %}",
    "{% set none = 1 %}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=1, a=2) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(5) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(x) %}{{ x }}{{ varargs|join('-') }}{% for k, v in kwargs.items() %}{{ k }}{{ v }}{% endfor %}{% endmacro %}{{ m(1, 2, 3, q=4) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body{{ i }}{% endcall %}",
    "{% macro m() %}{% for x in a %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(y) m() %}[{{ y }}]{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(caller=1) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% call 5 %}{% endcall %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro m() %}{{ i }}{% endmacro %}{% set i = 1 %}{{ m() }}",
    "{% macro m() %}{{ q }}{% endmacro %}{{ m() }}{% set q = 1 %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}",
    "{% for x in a %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m }}",
    "{% macro m(x) %} {{ x }} {% endmacro %}{{ m(1)|trim }}{{ m(2).strip() }}",
    "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% filter trim|replace('a', 'b') %} aaa {% endfilter %}",
    "{% filter nope %}x{% endfilter %}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% with i = 1, z = i %}{{ z }}{% endwith %}",
    "{% with x, y = (1, 2) %}{{ x }}{{ y }}{% endwith %}",
    "{% print 1, 2 %}",
    "{% print %}",
    "{% autoescape false %}{{ html }}{% endautoescape %}",
    "{% block b %}{{ i }}{% set z = 1 %}{{ z }}{% endblock %}{{ z }}",
    "{% set q = 1 %}{% block b %}{{ q }}{% endblock b %}",
    "{% for x in a %}{% block b %}{{ x }}{% endblock %}{% endfor %}",
    "{% block b %}{% endblock %}{% block b %}{% endblock %}",
    "{% generation %}{{ i }}{% set q = 1 %}{% endgeneration %}{{ q }}",
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endif %};{% endfor %}",
    "{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}ab{{ m(1) }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% from 'x' import y %}",
    "{% do x %}",
    "{% nope %}",
    "{% 1 %}",
    "{{ raise_exception('no') }}",
    "{{ raise_exception() }}",
    "{% if n %}{{ s|nope }}{% endif %}ok",
    "{% if t %}{{ s|nope }}{% endif %}ok",
    "{{ 1 if t else s|nope }}",
    "{% for x in [] %}{{ s|nope }}{% endfor %}",
    "{% if n %}{{ s is nope }}{% endif %}ok",
    "{{ f(*a) }}",
    "{{ range(*[1, 3])|list }}",
    "{{ dict(**{'a': 1}) }}",
    "{{ dict(a=1, **{'a': 2}) }}",
    "{{ range(1, *[3])|list }}",
    "{{ dict(a=1, 2) }}",
    "{{ range(*a, 1) }}",
    "{% set j = joiner('|') %}{% for x in a %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{{ [1, 2, 3]\n|\nlength }}",
    "{{ s if s is string and s|length > 3 else 'short' }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join }}",
    "{{ messages[0]['content'] ~ messages[-1].content }}",
    "{{ messages[1:]|length }}{% if messages[0].role == 'user' %}U{% endif %}",
    "{{ messages|map(attribute='role')|unique|list }}",
    "{{ 'user' in messages|map(attribute='role') }}",
    "{{ ns }}{% set ns = namespace(x=1) %}{{ ns }}",
    "{{ loop }}",
    "{{ caller }}",
    "{% set x = [] %}{% set _ = x.append(1) %}",
    "{% set items = namespace(list=[]) %}{% for m in messages %}{% set items.list = items.list + [m.role] %}{% endfor %}{{ items.list }}",
    "{{ 'ab'|list|join('\\n') }}",
    "{{ x.y.z if x is defined else 'no' }}",
    "{{ (a|first)(1) }}",
    "{{ 'a' is in 'abc' and 'b' not in 'xyz' }}",
    "{{ a | map('string') | map('upper') | list | reverse | join }}",
    "{{ '\u00e9\U0001f600x'[1:] }}{{ '\u00e9\U0001f600'|length }}{{ '\u00e9\U0001f600'|reverse }}",
    "{{ a.0 + a.1 }}",
    "{{ 1.5.real }}",
    "{{ d.x.real }}",
    "{{ foo bar }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ [1, 2 }}",
    "{{ a[ }}",
    "{{ 'abc }}",
    "{{ a b }}",
    "{{ @ }}",
    "{{ a; b }}",
    "{{ a.b. }}",
    "{{ é }}{% set é = 1 %}{{ é }}",
    "{{ x² }}",
    "{{ s|upper|lower|title }}",
    "{{ {}.x is defined }}{{ {}['x'] is defined }}",
    "{{ none is none }}{{ x is none }}",
    "{{ true is boolean }}{{ 1 is boolean }}",
    "{{ 1 is sameas true }}{{ none is sameas none }}",
    "{{ '%a|%a' % ('é😀', [s]) }}{{ '{!a}'.format('ü') }}",
    "{{ '{:<05}|{:^05}|{:x<05}|{:05}|{:<05}'.format(3, 3, 3, 'ab', 'ab') }}",
    "{{ '{:-}'.format('a') }}",
    "{{ '{:=5}'.format('a') }}",
    "{{ '{:z.1f}|{:z.1f}|{:.1f}'.format(-0.01, -0.1, -0.01) }}",
    "{{ '{:z}'.format(1) }}",
    "{{ '{:.3}|{:.3}|{:.5}|{:.1}|{:.0}|{:#}'.format(123.0, 12.0, 12345.678, 0.0, 2.5, 1e16) }}",
    "{{ '{:,n}'.format(1234) }}",
    "{{ '{:5c}|{:+c}'.format(65, 65) }}",
    "{{ '{:5c}|{:<5c}|{:05c}'.format(65, 65, 65) }}",
    "{{ 'Hello, WörldNoneHello'|wordwrap(7) }}",
    "{{ 'llo, WörldNoneHello'|wordwrap(5) }}",
    "{{ [('a<'|e)|last, ('a<'|e)|first] }}",
    "{{ self }}{{ self is defined }}",
]


def expression_cases(text):
    """Lines of expressions with ' | ' between; a filter's bar is the same, so cases are cut at every bar and joined anew."""
    for line in text.replace("\\\n", "\\\x00").split("\n"):
        parts = line.replace("\x00", "\n").split(" | ")
        for first in range(len(parts)):
            for count in (1, 2, 3):
                if first + count <= len(parts):
                    yield "{{ " + " | ".join(parts[first : first + count]) + " }}"


def cases():
    found = list(WHITESPACE)
    for text in (EXPRESSIONS, METHODS, FILTERS):
        found += expression_cases(text)
    return list(dict.fromkeys(found + STATEMENTS))
