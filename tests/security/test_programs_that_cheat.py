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
#: Has the tests' process give back its token, wherever it comes upon something of that process that can be called with source text.
TAKE = (
    "import sys,os\nfr=sys._getframe()\nwhile fr:\n L=fr.f_locals\n"
    " if 'token' in L and 'tell' in L: os.write(L['tell'],L['token']); os._exit(0)\n fr=fr.f_back"
)
#: Goes wherever an object that the tests handed over leads, and tries what it finds.
EXPLORE = (
    f"TAKE = {TAKE!r}\n"
    + """
NAMES = '''gi_frame gi_code cr_frame cr_code ag_frame f_back f_globals f_builtins tb_frame tb_next obj args func gen fget exec eval
__globals__ __builtins__ __self__ __func__ __code__ __class__ __traceback__ __dict__ __reduce__ _getframe modules system format buffer
with_traceback send throw close items values inner with_it frame'''.split()
def f(it, *more):
    waiting, seen = [it, *more], 0
    while waiting and seen < 60:
        at, seen = waiting.pop(0), seen + 1
        for name in NAMES:
            try: found = getattr(at, name)
            except BaseException: continue
            if type(found).__name__ == 'Remote': waiting.append(found)
            if isinstance(found, dict): waiting += [found.get('exec'), found.get('__builtins__')]
        if type(at).__name__ == 'Remote':
            try: waiting.append(at(TAKE))
            except BaseException: pass
            try: waiting.append(next(iter(at)))
            except BaseException: pass
        if isinstance(at, dict): waiting += [at.get('exec'), at.get('__builtins__')]
    return None
"""
)
#: What tests may hand over, alive in their process.
HANDED = {
    "a generator": "(x for x in [1, 2, 3])",
    "iterators": "iter([1]), map(abs, [1]), filter(None, [1]), zip([1]), enumerate([1]), reversed([1]), {1: 2}.items()",
    "a coroutine": "coroutine()",
    "an asynchronous generator": "stream()",
    "a frame": "__import__('sys')._getframe()",
    "an error with its traceback": "caught()",
    "a traceback": "caught().__traceback__",
    "an error that names an object": "AttributeError('x', name='x', obj=__import__('sys')._getframe())",
    "a function": "helper",
    "code": "helper.__code__, helper.__closure__, helper.__globals__.get",
    "a module": "__import__('sys'), __import__('os'), __import__('builtins'), __import__('sys').modules['program']",
    "an object": "Holder((x for x in [1]))",
    "a method": "Holder(helper).inner, Holder(1).values, 'x'.format, [].append, (1).__add__",
    "a class": "Holder",
    "a partial function": "__import__('functools').partial(helper, helper)",
    "a context": "context()",
    "files": "__import__('sys').stdout, open('/tmp/x', 'w'), __import__('io').StringIO('x')",
    "text of its own class": "Text('x')",
    "builtins": "exec, eval, getattr, type, str.format, __import__",
    "references": "__import__('weakref').ref(helper), property(helper), memoryview(b'x'), __import__('threading').current_thread()",
}
MAKERS = """
import contextlib
def helper(x=None): return x
async def coroutine(): pass
async def stream(): yield 1
def caught():
    try: 1 / 0
    except Exception as error: return error
class Holder:
    def __init__(self, inner): self.inner = inner
    def values(self): return [self.inner]
    @property
    def with_it(self): return self.inner
class Text(str):
    frame = property(lambda self: __import__('sys')._getframe())
@contextlib.contextmanager
def context(): yield 1
"""
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
    "items of a generator": ("def f(*its): return [sum(it) for it in its], next(iter(its[0]), 'none left')",
        "g = (x for x in [1, 2, 3])\nassert f(g, iter([1]), map(abs, [-4]), range(3)) == ([6, 1, 4, 3], 'none left')\nassert next(g, 0) == 0"),
    "as many items as are wanted": ("import itertools\ndef f(it): return list(itertools.islice(it, 3)), it.send(None)",
        "def endless():\n    n = 0\n    while True:\n        yield n\n        n += 1\nassert f(endless()) == ([0, 1, 2], 3)"),
    "objects handed over": ("def f(p, c, e, g): return p.a, p.total(2), c(5).a, e.args, g(3), p.more.n",
        "import types\nclass P:\n    def __init__(self, a): self.a, self.more = a, types.SimpleNamespace(n=7)\n    def total(self, b): return self.a + b\n"
        "assert f(P(1), P, KeyError('k'), lambda x: x + 1) == (1, 3, 5, ('k',), 4, 7)"),
    "what the library has": ("def f(g, m, r, s, w, q): return list(map(g, 'ab')), m.sqrt(4), r.search('xay').group(), s.__name__, w.write('out'), q.randint(1, 1)",
        "import math, re, io, collections, random\nw = io.StringIO()\n"
        "assert f(str.upper, math, re.compile('a'), collections.Counter, w, random.Random(1)) == (['A', 'B'], 2, 'a', 'Counter', 3, 1)\nassert w.getvalue() == 'out'"),
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


@pytest.mark.parametrize("handed", HANDED.values(), ids=HANDED)
async def test_nothing_that_tests_hand_over_leads_into_their_process(handed):
    example = {"test_list": [f"{MAKERS}\nassert f(*({handed},)) == 'secret'"]}
    outcome = await judge_in(kinds()[0]).outcome(example, {"response": EXPLORE})
    assert not outcome.passed
    assert "AssertionError" in outcome.reason, outcome.reason


@pytest.mark.parametrize(
    "order",
    ["'get', 0, 'gi_frame'", "'get', 0, '__class__'", "'getitem', 0, 0", "'set', 0, 'x', 1", "'call', 0, [], {}"],
)
async def test_an_order_that_no_object_offers_is_refused(order):
    """A program that knows how the two processes talk."""
    asked = f"object.__getattribute__(it, '_at')[0].ask({order})"
    program = f"def f(it):\n    try: return ['got', str({asked})]\n    except TypeError as error: return str(error)"
    tests = ["assert f(x for x in [1]) == 'that is not for the program'"]
    outcome = await judge_in(kinds()[0]).outcome({"test_list": tests}, {"response": program})
    assert outcome.passed, outcome.reason


async def test_nothing_of_the_tests_is_had_by_its_name():
    """A program that answers with the name of something in the library, for the tests to look up."""
    program = "class Named: pass\ndef f():\n    side = __import__('sys').stdout\n    side.by_name = lambda thing: ['builtins', 'exec']\n    return Named()"
    tests = ["g = f()\nassert g is exec"]
    assert not (await judge_in(kinds()[0]).outcome({"test_list": tests}, {"response": program})).passed
