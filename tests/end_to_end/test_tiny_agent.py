"""The example agent in a sandbox, driven by the scripted model over loopback, on the tasks that are shipped."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from context_bench.agents.datasets import BUNDLED, SCRIPT, load_tasks
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.sandbox import find_agent_sandbox, verify, workspace

pytestmark = pytest.mark.program("bwrap")
AGENT = Path(__file__).parents[2] / "examples" / "tiny_agent.py"


def worked_on(task, house, url, **env):
    """(how the agent ended, its patch, the verdict)"""
    with workspace(task["repo"], house=house, readable=[AGENT]) as copy:
        given = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", **env}
        done = copy.run(
            ["python", str(AGENT)], stdin=task["instruction"].encode(), env=given, network=True, timeout=120
        )
        return done, copy.patch(), verify(copy, task["verify"])


async def test_the_scripted_model_solves_eleven_of_twelve():
    house = find_agent_sandbox()
    async with ModelServer(Scripted(SCRIPT)) as server:
        with ThreadPoolExecutor(2) as pool:
            loop = asyncio.get_running_loop()
            tasks = load_tasks(BUNDLED)
            runs = await asyncio.gather(
                *(loop.run_in_executor(pool, worked_on, task, house, f"{server.url}/v1") for task in tasks)
            )
    for task, (done, patch, verdict) in zip(tasks, runs, strict=True):
        assert done.exit == 0, done
        assert done.stdout_tail.rstrip().endswith("SUBMIT")
        if task["id"] == "job-priority-two-files":  # it forgets the second file
            assert verdict.failed == ("tests.test_jobs.JobsTest.test_saved_with_priority",)
            assert "jobs/saving.py" not in patch
        else:
            assert verdict.solved, verdict
            assert patch == task["gold_patch"]


async def test_the_agent_gives_up_at_its_step_limit():
    house = find_agent_sandbox()
    [task] = load_tasks(f"{BUNDLED}:pager-last-page")
    async with ModelServer(Scripted({"default": "```bash\nseq 9999\n```"})) as server:
        done, patch, verdict = await asyncio.to_thread(worked_on, task, house, f"{server.url}/v1", STEP_LIMIT="2")
        sent = [received.raw for received in server.requests]
    assert (done.exit, patch, verdict.solved) == (1, "", False)
    assert len(sent) == 2
    assert b"characters left out]" in sent[1]
    assert b"[exit status 0]" in sent[1]
