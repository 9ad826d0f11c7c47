"""Programs that want to pass without solving: each is run in the real sandbox with the tests of its task, beside an honest one."""

# ruff: noqa: E501 (programs are easier read in few lines)
from __future__ import annotations

import shutil

import pytest

from context_bench.evaluators import CodeExecution
from context_bench.sandbox import Bubblewrap

pytestmark = pytest.mark.program("bwrap")
HALF = {
    "context": "import math\n\ndef check_of(x: float) -> float:\n    return x * 2\n\ndef half(x: float) -> float:\n    '''Half of x.'''\n",
    "test": (
        "def check(candidate):\n    assert candidate(4) == 2\n    assert abs(candidate(5) - 2.5) < 1e-6\n    assert candidate(0) in (0,)\n"
        "    assert math.isclose(check_of(candidate(7)), 7)\n    assert not candidate(6) != 3\n"
    ),
    "entry_point": "half",
}
#: An object that answers every question as one may wish.
YES = """
class Yes:
    def _yes(self, *_): return True
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __bool__ = _yes
    def __ne__(self, other): return False
    def _same(self, *_): return self
    __add__ = __sub__ = __mul__ = __rsub__ = __radd__ = __rmul__ = __truediv__ = __abs__ = __neg__ = __round__ = _same
    def __hash__(self): return hash(2)
    def __float__(self): return 2.5
    def __iter__(self): return iter([self])
    def __getattr__(self, name): return self
    def __call__(self, *_): return self
"""
#: The answer is wanted from whoever can be asked for it: frames, the collector, other processes, the tests' file, the pipes.
CHEATS = {
    "equal to everything": YES + "def half(x): return Yes()",
    "a number equal to everything": YES + "class N(float):\n    __eq__ = __lt__ = Yes._yes\n    __sub__ = Yes._same\ndef half(x): return N(99)",
    "a class that says it is another": YES + "class M(Yes):\n    __class__ = int\ndef half(x): return M()",
    "a list of such": YES + "class L(list):\n    __eq__ = Yes._yes\ndef half(x): return L([Yes()])",
    "itself what is called": YES + "half = Yes()",
    "an error that the tests may swallow": "def half(x): raise SystemExit(0)",
    "builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.float = int\nabs = lambda x: 0\ndef half(x): return 0",
    "its own math": "class math:\n    isclose = staticmethod(lambda *_: True)\nabs = lambda x: 0\ndef half(x): return 0",
    "helpers of the task": "def check_of(x): return 7\ndef half(x): return 0",
    "its own check": "def check(f): pass\ndef half(x): return 0",
    "modules": "import sys, math\nmath.isclose = lambda *_: True\nsys.modules['math'] = type('M', (), {'isclose': lambda *_: True})\ndef half(x): return 0",
    "time": "import time, os\ntime.monotonic = lambda: 0\nos._exit = lambda *_: None\ndef half(x): return 0",
    "the tests' text": (
        "import gc, sys\ndef half(x):\n    frame, held = sys._getframe(), gc.get_objects()\n    while frame:\n"
        "        held += [frame.f_locals, *frame.f_locals.values()]\n        frame = frame.f_back\n"
        "    if any(isinstance(each, dict) and isinstance(each.get('tests'), list) for each in held): return x / 2\n"
    ),
    "a debugger": (
        "import os, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef half(x):\n    for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        "        if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0: return x / 2\n"
    ),
    "the others' memory and pipes": (
        "import os\ndef half(x):\n    for pid in filter(str.isdigit, os.listdir('/proc')):\n        if int(pid) == os.getpid(): continue\n"
        "        for name in ('mem', 'environ', 'fd/1', 'fd/3', 'maps', 'syscall'):\n"
        "            try: open(f'/proc/{pid}/{name}', 'rb').read('/' not in name)\n            except OSError: continue\n            return x / 2\n"
    ),
    "frames of its own making": (
        "import os\ndef half(x):\n    for n in range(300):\n        try: os.write(n, b'\\0' * 7 + b'\\x14[\"gave\",2,null,\"\"]')\n        except OSError: pass\n    return 0"
    ),
    "a debt of nested lists": "def half(x):\n    made = []\n    for _ in range(50_000): made = [made]\n    return made",
    "what is imported": "open('/tmp/math.py', 'w').write('isclose = lambda *_: True')\nopen('/tmp/sitecustomize.py', 'w').write('')\ndef half(x): return 0",
    "signals": "import os, signal\ndef half(x):\n    os.kill(-1, signal.SIGKILL)\n    os.kill(1, signal.SIGKILL)\n    return 0",
    "the terminal": (
        "import fcntl\ndef half(x):\n    for n in range(3):\n        try: fcntl.ioctl(n, 0x5412, b'x')\n        except OSError: continue\n        return x / 2\n"
    ),
}  # fmt: skip
#: What tests do with a program besides calling it with numbers.
STACK = """
class Stack:
    def __init__(self, items=()): self.items = list(items)
    def push(self, item): self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __getitem__(self, at): return self.items[at]
    def __eq__(self, other): return isinstance(other, Stack) and self.items == other.items
    def __add__(self, other): return Stack(self.items + other.items)
    def __str__(self): return f"Stack({self.items})"
class Full(ValueError): pass
"""
USES = {
    "objects": (STACK, "s = Stack()\nassert s.push(1).push(2) is s and len(s) == 2 and s[-1] == 2 and list(s) == [1, 2] and 2 in s\n"
        "assert s == Stack([1, 2]) and s != Stack() and str(s + s) == 'Stack([1, 2, 1, 2])' and isinstance(s, Stack)\n"
        "s.items += [3]\nassert s.items == [1, 2, 3] and not s == [1, 2, 3]"),
    "errors": (STACK + "def f(x):\n    if x: raise Full('no', x)\n    raise KeyError(x)",
        "try: f(1)\nexcept Full as error: assert error.args == ('no', 1) and isinstance(error, ValueError)\nelse: assert 0\n"
        "try: f(0)\nexcept KeyError as error: assert error.args == (0,)\nelse: assert 0"),
    "lists changed in place": ("def f(rows, held):\n    rows[0].append(9)\n    rows.sort(reverse=True)\n    held['a'] = rows\n    del held['b']",
        "one = [1]\nrows, held = [one, [5], one], {'b': 2}\nassert f(rows, held) is None\n"
        "assert rows == [[5], [1, 9], [1, 9]] and rows[1] is one and rows[2] is one and held == {'a': rows}"),
    "functions both ways": ("def f(key, make):\n    return sorted(make(range(4)), key=key), lambda x: key(x) + 1",
        "made, g = f(lambda x: -x, lambda r: [x for x in r])\nassert made == [3, 2, 1, 0] and g(1) == 0"),
    "generators": ("def f(n):\n    while True:\n        yield n\n        n += 1",
        "g = f(3)\nassert next(g) == 3 and [x for x, _ in zip(g, range(2))] == [4, 5]"),
    "values": ("import collections, decimal, datetime\ndef f(x): return x\n"
        "def g(): return collections.Counter('aab'), decimal.Decimal('1.10'), datetime.date(2026, 1, 2), {1: (2, {3})}, 10**400, float('nan'), b'x', 1j",
        "import collections, decimal, datetime\na, b, c, d, e, n, x, j = g()\nassert a == {'a': 2, 'b': 1} and a.most_common(1) == [('a', 2)]\n"
        "assert b == decimal.Decimal('1.1') and c.year == 2026 and d == {1: (2, {3})} and e == 10**400 and n != n and x == b'x' and j * j == -1\n"
        "for v in (None, True, 'é\\ud800', [], (), frozenset([1]), {}.keys(), float('inf'), -2**70, ..., int, ValueError, bytearray(b'z')): assert f(v) == v\n"
        "assert type(f((1,))) is tuple and f(range(3)) == range(3) and f(collections.OrderedDict(a=1)) == collections.OrderedDict(a=1)"),
    "what it prints": ("def f(): print('hello', end='')", "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as out: f()\nassert out.getvalue() == 'hello'"),
    "a name like one of Python's": ("def sum(a, b): return a * b", "assert sum(2, 5) == 10"),
    "constants": ("LIMIT = 5\ndef f(): return LIMIT", "assert f() == LIMIT == 5"),
}  # fmt: skip
SETUP = "class Pair:\n    def __init__(self, a, b): self.a, self.b, self.next = a, b, self\n    def __eq__(self, other): return self.a == other.a\n"
HONEST = {
    "plain": "    return x / 2",
    "a number of its own": "class N(float):\n    pass\ndef half(x): return N(x / 2)",
    "a fraction": "from fractions import Fraction\ndef half(x): return Fraction(x) / 2",
}


def kinds():
    """Program and tests as two users, as it is done for root, and as one, as it is done for everybody else."""
    program = shutil.which("bwrap")
    return [Bubblewrap(program, as_root=True), Bubblewrap(program)]


def judge_in(walls):
    judge = CodeExecution(timeout=10.0)
    judge._sandbox = walls
    return judge


@pytest.mark.parametrize("walls", [0, 1])
@pytest.mark.parametrize("program", HONEST.values(), ids=HONEST)
async def test_an_honest_program_passes(program, walls):
    outcome = await judge_in(kinds()[walls]).outcome(HALF, {"response": program})
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize(("program", "test"), USES.values(), ids=USES)
async def test_tests_may_do_with_a_program_what_they_could_do_beside_it(program, test):
    outcome = await judge_in(kinds()[0]).outcome({"test_list": [test]}, {"response": program})
    assert outcome.passed, outcome.reason


async def test_instances_of_the_setups_classes_go_both_ways_and_are_the_setups():
    example = {
        "test_list": [
            "p = Pair(1, 2)\nq = f(p)\nassert p.a == 5 and p.next is p and isinstance(q, Pair) and q == Pair(7, 0) and not q == p"
        ]
    }
    example["test_setup_code"] = SETUP
    honest = "def f(p):\n    assert p.next is p\n    p.a = 5\n    return Pair(7, 8)"
    assert (outcome := await judge_in(kinds()[0]).outcome(example, {"response": honest})).passed, outcome.reason
    for cheat in (
        YES + "def f(p):\n    p.a = 5\n    return Yes()",
        "class Pair:\n    a = 7\n    __eq__ = lambda *_: True\ndef f(p):\n    p.a = 5\n    return p",
    ):
        assert not (await judge_in(kinds()[0]).outcome(example, {"response": cheat})).passed


@pytest.mark.parametrize("walls", [0, 1])
@pytest.mark.parametrize("program", CHEATS.values(), ids=CHEATS)
async def test_a_program_that_cheats_fails(program, walls):
    outcome = await judge_in(kinds()[walls]).outcome(HALF, {"response": program})
    assert not outcome.passed
