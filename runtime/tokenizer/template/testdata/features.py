"""Writes features.json: small templates and what jinja2 makes of them.

The environment is the one transformers renders chat templates with
(ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls,
tojson, raise_exception). jinja2 3.1.6 made the committed file. A row has the
output, or "error": true where jinja2 refuses the template or its rendering.

    python3 features.py > features.json
"""
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARS = {
    "s": "Hello, World", "u": "h\u00e9llo \U0001f642 \u4f60\u597d", "empty": "", "ws": "  \t padded \n", "n": 7, "neg": -7, "zero": 0, "f": 2.5,
    "big": 9007199254740993, "t": True, "no": False, "none_": None, "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "e": [],
    "d": {"b": 1, "a": [1, 2, {"x": None}], "C": "v"}, "ed": {}, "nested": {"items": 5, "get": {"deep": {"er": "x"}}},
    "people": [{"name": "Bo", "age": 30, "tags": ["x", "y"]}, {"name": "al", "age": 25, "tags": []}, {"name": "Cy", "age": 30}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
    "lines": "one\ntwo\r\nthree\n\nfive\n", "quote": "it's \"q\" \\ \n\t\x01\x7f\u00a0", "html": "<a href='x'>&\"</a>",
    "json_": {"a": "\u00e9\"\\/\n\u2028<>&'", "b": [1.0, 1e20, 1e-7, -0.0, True, None, []], "c": {}, "d": {"k": [1, {"z": 2}]}},
}

T = []

def add(*templates):
    T.extend(templates)

def exprs(text):
    for line in text.strip().split("\n"):
        add("{{ " + line.strip() + " }}")

# Literals, operators, precedence.
exprs(r"""
1
-1
1_000
0x1F + 0b101 + 0o17
1.5e3
1e16
1e-5
123456789.123
'a' "b" 'c'
'\n\t\\\'\x41\u00e9\101\q'
true, false, none
True and False or None
[]
[1, 'a', 2.0, none, true,]
()
(1,)
(1, 2)
1, 2
{}
{'a': 1, 2: 'b', none: [1]}
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3
7.5 // 2, -7.5 % 2, 2 ** 10, 2 ** -1, -2 ** 2, 2 ** 3 ** 2
1 / 0
1 % 0
1 ~ 2 ~ 'x' ~ none ~ true ~ 1.0
'a' ~ 1 + 2
'ab' * 3, 3 * 'ab', [1, 2] * 2, 'a' * -1
'a' + 1
[1] + [2, 3]
(1,) + (2,)
[1] + (2,)
'%s-%d-%5.2f|%-5s|%05d|%x|%%' % ('a', 3, 2.5, 'q', 42, 255)
'%s' % 'one'
'%s %s' % ('a',)
'%(a)s' % {'a': 1}
1 < 2 < 3, 3 > 2 > 2, 1 == 1.0, 1 == true, 'a' < 'b', [1, 2] < [1, 3]
'a' < 1
1 in [1, 2], 'b' not in 'abc', 'a' in d, 3 in l, 'z' in ed
1 in 'abc'
not true, not 0, not ''
not 1 == 2
1 if true else 2, 1 if false else 2
1 if false
(1 if false) is undefined
'x' if 0 else 'y' if 0 else 'z'
n if n > 5 else undefined_name
- n, + n, -f
-(-n)
n is number and f is float and t is boolean
big, big + 1, big * 2
1.0, 100.0, 1e100, 0.1 + 0.2, 1/3
'a' if t and not no or none_ else 'b'
-1 | abs
-n | abs
2 + n | string
(2 + n) | string | length
[[1, 2], [3]] | map('length') | list
{'a': {'b': [10, 20]}}.a.b[1]
'abc'[0], 'abc'[-1], 'abc'[5]
l.0, l.2
l[0], l[-1], l[10], l[-10]
l[:2], l[1:], l[::-1], l[-2:], l[5:], l[::2], l[2:0:-1], l[:-1]
range(5)[1:3] | list
missing in d, missing not in d, d.get(missing, 'x'), d[missing], [missing, gone] | unique | list | length, l | unique(attribute='a') | list
missing == gone, missing in [gone], missing in l, {missing: 1}
'ab' % l, 'ab' % d, 'a%s' % l
'ab' % (1,)
'ab' % 1
'%d' % missing
n | indent
none_ | indent
missing | indent
(s | safe) | indent
t[:]
n[:1] | default('x')
none_[1:]
d[:1]
l['a':]
(l | map('string'))[:1]
u[:3], u[::-1], u[6], u[-1], u[2:20]
s[7:], s[:-5], s[::3], s[-1:0:-4]
l['a'], s['upper'](), d['a'][2]['x']
""")

# Attributes, undefined, methods.
exprs(r"""
missing
missing | default('d')
missing.attr
missing[0]
missing + 1
missing ~ 'x'
missing == missing, missing == none, missing is undefined, missing is defined
missing | length
missing | list
missing | join(',')
d.missing
d.missing.deeper
d['missing'] | default(5)
d.missing is defined, d.b is defined, d['a'] is defined
none_.x
none_.x.y
n.x
'yes' if missing else 'no'
[x for x in l]
d.b, d['b'], d.get('b'), d.get('zz'), d.get('zz', 3)
d.items(), d.keys(), d.values()
d.items() | list, d.keys() | list, d | list
d | length, d.items() | length
nested['items'], nested['get'].deep.er
nested.items()
d.copy().b
d.update({'x': 1})
d.pop('b')
l.append(4)
l.append is defined
l.index(1), l.count(3)
l.index(99)
dict(a=1, b=2), dict({'q': 1}, r=2), dict([('a', 1)])
s.upper(), s.lower(), s.title(), s.swapcase(), 'hELLO wORLD'.capitalize()
"they're bill's friends".title()
ws.strip(), ws.lstrip(), ws.rstrip(), 'xxaxx'.strip('x'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab')
s.split(), s.split(', '), s.split('l', 1), s.rsplit('l', 1), ' a  b '.split(), ' a  b c '.split(none, 1), 'a,b,'.split(',')
' a  b c '.rsplit(none, 1), ' a b '.rsplit(), ' a  b c '.rsplit(none, 0), ' a  b c '.split(none, 0), 'a.b.c'.rsplit('.', 1)
'abc'.split('')
'</think>x</think>y'.split('</think>')[-1].lstrip('\n')
lines.splitlines(), lines.splitlines(true), ''.splitlines()
s.startswith('He'), s.endswith(('x', 'ld')), s.startswith('l', 2), s.endswith('')
s.find('o'), s.rfind('o'), s.find('zz'), s.find('o', 5), u.find('\u4f60'), s.index('W')
s.index('zz')
s.count('l'), s.replace('l', 'L'), s.replace('l', 'L', 1), 'aaa'.replace('', '-')
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')
', '.join(['a', 'b']), ''.join([])
','.join([1])
'ab'.center(7, '*'), 'abc'.center(6) ~ '|', 'ab'.ljust(5) ~ '|', 'ab'.rjust(5), '42'.zfill(5), '-42'.zfill(5)
'12'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'AB'.isupper(), 'ab'.islower(), ''.isdigit(), 'A1'.isupper()
'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt')
'{} {}'.format(1, 'a'), '{0}{1}{0}'.format('a', 'b'), '{x:>5}|{y:.2f}|{z:05d}'.format(x='a', y=1.5, z=42), '{{}}'.format()
'{:,}'.format(1234567), '{:x}'.format(255), '{!r}'.format('a'), '{:^7}'.format('mid'), '{:*<5}'.format(3)
'{}'.format()
s.nosuch
s.nosuch()
s()
'abc'.upper().lower().title()
""")

# Filters.
exprs(r"""
[-3, 2.5] | map('abs') | list
'3' | int, '3.9' | int, 'x' | int, 'x' | int(7), '0x1A' | int(base=16), 3.9 | int, none_ | int, true | int, ' 42 ' | int
'3.5' | float, 'x' | float, 'x' | float(1.5), 3 | float, '1e3' | float
2.5 | round, 3.5 | round, 2.675 | round(2), 2.1 | round(0, 'ceil'), 2.9 | round(method='floor'), 1234 | round(-2), 7 | round
none_ | default('d'), '' | default('d', true), 0 | default('d', boolean=true), '' | d('x')
n | string | length, s | length, u | length, e | count
s | upper, s | lower, 'foo bar-baz (qux)' | title, 'fOO' | capitalize
ws | trim, 'xxaxx' | trim('x')
s | replace('l', 'L'), s | replace('l', 'L', 2), 123 | replace('2', 'x')
l | first, l | last, e | first, e | last, s | first, u | last
l | sum, people | sum(attribute='age'), l | sum(start=10), e | sum
l | min, l | max, words | min, words | max, e | max, people | max(attribute='age')
l | sort, l | sort(reverse=true), words | sort, words | sort(case_sensitive=true), people | sort(attribute='name') | map(attribute='name') | list
people | sort(attribute='age,name') | map(attribute='name') | join(' ')
d | dictsort, d | dictsort(true)
d | dictsort(by='value')
{'b': 2, 'a': 1, 'C': 3} | dictsort(false, 'value', true)
l | reverse | list, 'abc' | reverse, u | reverse
l | join, l | join('-'), people | join(', ', attribute='name'), 'abc' | join('.')
people | map(attribute='name') | list, people | map(attribute='zz', default='q') | list, people[:1] | map(attribute='tags.0') | list
people | map(attribute='tags.0') | list
words | map('upper') | join, words | map('replace', 'a', 'x') | list
people | selectattr('age', 'eq', 30) | map(attribute='name') | list
people | selectattr('tags') | map(attribute='name') | list, people | rejectattr('tags', 'defined') | map(attribute='name') | list
l | select('odd') | list, l | reject('gt', 1) | list, [0, 1, '', 'a'] | select | list
(l | select('odd')) is iterable, 'yes' if (e | select) else 'no'
l | select('odd') | length
none_ | select('odd') | list, none_ | selectattr('a', 'defined') | map(attribute='a') | join('-'), zero | map('upper') | list, no | reject | list, empty | rejectattr('a') | list
none_ | selectattr('a', 'defined') is iterable, none_ | map | list, none_ | selectattr | list, none_ | select('nosuch') | list
n | select | list
t | map(attribute='a') | list
words | unique | list, [1, 1.0, true, 2] | unique | list, words | unique(true) | list
people | groupby('age') | map('first') | list, (people | groupby('age'))[1][1] | map(attribute='name') | list
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3, 4, 5] | batch(2, 'x') | list, [1, 2, 3, 4, 5] | slice(3) | list, [1, 2, 3, 4, 5] | slice(3, 'x') | list
d | items | list, missing | items | list
l | items | list
'a\nb\n\nc' | indent, 'a\nb\n\nc' | indent(2, true), 'a\nb\n\nc' | indent(2, blank=true), 'a\nb' | indent('> '), 'a\nb' | indent(width=1, first=true)
'ab' | center(6) ~ '|', 'foo bar baz qux' | truncate(9), 'foo bar baz qux' | truncate(9, true), 'foo bar baz' | truncate(11), 'foo bar baz qux' | truncate(5, true, '', 0)
'a b  c-d' | wordcount, '%s=%s' | format('a', 1), 'a b/c?d=é&' | urlencode
html | escape
html | e | length
html | safe
d | attr('items') is callable, d | attr('b') is undefined
[] | nosuch
s | upper(1)
{'a': 1} | list | first
1 | list
none_ | length
n | length
'abc' | list, range(5) | list, range(2, 8, 3) | list, range(5, 0, -2) | list
range(3) | join(','), range(0) | list | length
range(1000000) | length
""")

# tojson.
exprs(r"""
json_ | tojson
json_ | tojson(indent=2)
json_ | tojson(indent=4)
json_ | tojson(indent='\t')
json_ | tojson(indent=0)
json_ | tojson(ensure_ascii=true)
json_ | tojson(separators=(',', ':'))
json_ | tojson(sort_keys=true), d | tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson
u | tojson, u | tojson(ensure_ascii=true), quote | tojson, (1, 2) | tojson, [] | tojson, {} | tojson, none | tojson, true | tojson
missing | tojson
d.items() | tojson
""")

# Tests.
exprs(r"""
n is odd, n is even, n is divisibleby(7), n is divisibleby 3, 4 is even
none_ is none, n is not none, missing is none, none is defined
s is string, n is string, l is string, n is integer, t is integer, f is integer, t is number, s is number
d is mapping, l is mapping, l is sequence, s is sequence, d is sequence, n is sequence, d.items() is sequence, missing is sequence
l is iterable, s is iterable, n is iterable, d is iterable, missing is iterable, none_ is iterable
true is true, 1 is true, false is false, 0 is false, t is boolean, 1 is boolean
s is upper, 'ABC' is upper, 'abc' is lower, n is eq 7, n is eq(7), n is gt 3, n is lessthan 3, n is in [7], s is in('Hello, World!')
l is sameas l, 1 is sameas 1, s is callable, d.get is callable, range is callable
n is nosuch
'upper' is filter, 'nosuch' is filter, 'odd' is test, 'nosuch' is test
n is not odd, n is not even
n is odd is true
not n is odd, n is odd and n is number, (n is odd) == true
""")

# Output of values.
exprs(r"""
quote
[quote, u, 'a\'b', "a\"b", 'a\'b"c']
['\x85', '\u200b', '\U0001f642', '\xad']
d
json_
[none, true, 1.0, (1,), ((), [])]
""")

# White space.
add("a {%- if t -%} b {%- endif -%} c", "a {%+ if t +%} b {%+ endif %} c", "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t %}\n  b\n  {%- endif %}\nc\n\n",
    "  {% if t %}x{% endif %}  \n", "  {{ n }}\n  {{- n -}}  \n x", "{# c #}\nx", "a {#- c -#} b", "  {# c #}\n  x {# d #} \n", "{% if t %}\n\n x\n{% endif %}\n\n",
    "{% raw %}{{ n }} {% if %}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "  {% raw %}\n a {% endraw %}\n b", "\r\na\r\n{% if t %}\r\nb{% endif %}\rc",
    "x{% if t %} {% endif %}y", "\t{%+ if t %}x{% endif %}", "{{ n }}\n{% if t %}\n{{ n }}\n{% endif %}\n", "a\n\n\n", "\n", "", "{{ '{{' }} {{ '%}' }} {{ {'a': {'b': 1}}['a']['b'] }}",
    "{{- n +}}", "{{+ n }}", "a {{+ n }}", "{%- for i in l -%}\n  {{ i }}\n{%- endfor -%}\n z", "x \n {#+ c #} y", "{#- a\n b #}\n\n x", "{% set x = 1 -%}\n   y", "{% if t -%}\n  a\n{%- else -%} b {%- endif %}")

# Statements and scope.
add("{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ', ' if not loop.last }}{% endfor %}", "{% for x in e %}a{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in missing %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in none_ %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% else %}no{% endfor %}", "{% for x in l if x > 9 %}{% else %}no{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.depth }} {% endfor %}",
    "{% for x in [1, 1, 2, 2] %}{{ x if loop.changed(x) }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for p in people %}{% for tag in p.tags %}{{ loop.index }}{{ tag }}{{ loop.first }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for node in tree recursive %}{{ node.v }}({{ loop(node.c) }}){{ loop.depth }}{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", "{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% if no %}{% set y = 2 %}{% endif %}{{ y is defined }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set (a, b) = (3, 4) %}{{ a + b }}",
    "{% set d.x = 1 %}", "{% set zz.x = 1 %}", "{% set x %}a{{ n }}b{% endset %}{{ x | upper }}", "{% set x | upper | replace('A', 'z') %}a{{ n }}b{% endset %}{{ x }}", "{% set x = 1, 2 %}{{ x }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% filter upper | replace('A', '4') %}a {{ s }}{% endfilter %}", "{% if missing %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% elif no %}c{% endif %}!",
    "{% macro f(a, b=2, c=a ~ b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(b=5, a=4) }} {{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}", "{% macro f(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) f(3) %}<{{ y }}{{ n }}>{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 9 %}{{ f() }}", "{% macro f() %}{% set inner = 1 %}{{ n }}{% endmacro %}{{ f() }}{{ inner is defined }}", "{% macro f(x) %}{{ x | upper }}{% endmacro %}{{ f('a') ~ f('b') }}{{ f.name }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}", "{{ namespace(a=1) is mapping }}", "{% set ns = namespace({'q': 1}) %}{{ ns.q }}{{ ns['q'] }}{{ ns.nope }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y{{ j() }}", "{{ raise_exception('stop') }}", "{% if no %}{{ raise_exception('stop') }}{% endif %}ok",
    "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(1, a=1, 2) }}", "{{ dict(*[], **{'a': 1}) }}", "{{ '{}{}'.format(*[1, 2]) }}", "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1], **{'b': 2}) }}", "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(1, a=2) }}",
    "{% generation %}{{ s }}{% endgeneration %}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% continue %}{% endif %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% set x = l | map('string') %}{{ x | join }}{{ x | join }}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for x in l recursive %}{{ x }}{% endfor %}",
    "{% for x in l %}{% set l = [9] %}{{ x }}{% endfor %}{{ l }}", "{% set messages = [1, 2, 3] %}{% set messages = messages[1:] %}{{ messages }}", "{% if t %}{% for x in l %}{{ x }}{% endfor %}{% endif %}", "{% set loop_messages = people[:1] %}{% for m in loop_messages %}{{ m['name'] }}{% endfor %}")

# Syntax errors.
add("{{", "{{ }}", "{% %}", "{% if %}x{% endif %}", "{% if t %}", "{% endif %}", "{% for x l %}{% endfor %}", "{% nosuch %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1, }}", "{{ {1} }}", "{{ 'a }}", "{{ a b }}", "{{ 1 $ 2 }}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{% macro %}{% endmacro %}", "{% raw %}x", "{# x", "{{ x | }}", "{{ x is }}", "{{ x. }}", "{{ x[] }}", "{{ x[1:2:3:4] }}", "{% for x in l %}{% else %}", "{% break %}", "{% macro f() %}{% break %}{% endmacro %}",
    "{{ }} }}", "}} %}", "{{ a }", "{% if t %}{% endfor %}", "{% call n %}{% endcall %}", "{% elif t %}", "{{ f(a=1, 2) }}", "{{ f(**a, 1) }}", "{% set x %}", "{{ not }}", "{{ 1 if }}", "{{ 1 if 2 else }}", "{{ 1 is not }}", "{{ ] }}", "{{ (] }}")

class Generation(jinja2.ext.Extension):
    """transformers' {% generation %}: the block renders as its body."""
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def render(self, caller):
        return caller()

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    print('{"vars":' + json.dumps(VARS) + ',\n"rows":[')
    for i, source in enumerate(T):
        row = {"template": source}
        try:
            row["output"] = env.from_string(source).render(VARS)
        except Exception:
            row["error"] = True
        print(json.dumps(row) + ("," if i + 1 < len(T) else ""))
    print("]}")

main()
