"""How long to wait, read from headers of every form."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given, strategies as st

from context_bench.llm.failures import RetryPolicy, asked_wait, should_retry

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "259200"}, 259_200.0),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50"}, 30.0),  # no zone: UTC
        ({"retry-after": "2023-11-14T22:13:50+00:00"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "?", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1"}, 0.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset": str(int(NOW) + 12)}, 12.0),
        ({"x-ratelimit-reset": str((int(NOW) + 12) * 1000)}, 12.0),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:29Z"}, 9.0),
        ({"x-ratelimit-reset-requests": "later"}, None),
        ({"retry-after": "soon", "x-ratelimit-reset-requests": "4s"}, 4.0),
    ],
)
def test_asked_wait(headers: dict[str, str], seconds: float | None) -> None:
    found = asked_wait(headers, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_the_quota_that_is_used_up_decides() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "8s",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "2s",
    }
    assert asked_wait(headers, NOW) == 8.0
    assert asked_wait({name: value for name, value in headers.items() if "reset" in name}, NOW) == 2.0


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens"]), st.text()
    )
)
def test_any_header_gives_a_wait_that_can_be_waited(headers: dict[str, str]) -> None:
    found = asked_wait(headers, NOW)
    assert found is None or (found >= 0 and math.isfinite(found))
    assert 0 <= RetryPolicy().delay(1, found) <= 60


@given(st.floats(0, 1e6, allow_nan=False))
def test_a_number_of_seconds_is_read_back(seconds: float) -> None:
    assert asked_wait({"retry-after": f"{seconds:.3f}"}, NOW) == pytest.approx(seconds, abs=6e-4)


def test_back_off_doubles_and_is_capped() -> None:
    policy = RetryPolicy(base_delay=1.0, cap=60.0)
    assert [policy.delay(n, None) for n in (1, 2, 3, 10, 5000)] == [1, 2, 4, 60, 60]
    assert policy.delay(1, 30.0) == 30
    assert policy.delay(3, 2.0) == 4
    assert policy.delay(1, 3 * 86_400) == 60
    assert RetryPolicy(cap=5).delay(1, 30) == 5
    assert RetryPolicy(base_delay=0).delay(9, None) == 0


@pytest.mark.parametrize(
    ("status", "headers", "again"),
    [
        (429, {}, True),
        (529, {}, True),
        (409, {}, True),
        (400, {}, False),
        (501, {}, False),
        (500, {"x-should-retry": "false"}, False),
        (400, {"x-should-retry": "true"}, True),
        (400, {"x-should-retry": "maybe"}, False),
    ],
)
def test_should_retry(status: int, headers: dict[str, str], again: bool) -> None:
    assert should_retry(status, headers) is again
