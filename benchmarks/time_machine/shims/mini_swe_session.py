"""mini-swe-agent at work against the address given, until its budget of two steps is spent."""

import os
import sys
import tempfile

os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    MSWEA_SILENT_STARTUP="1",
    MSWEA_COST_TRACKING="ignore_errors",
    MSWEA_GLOBAL_CONFIG_DIR=tempfile.mkdtemp(),
)

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

model = LitellmModel(model_name="openai/gpt-4o-mini", model_kwargs={"api_key": "k", "api_base": f"{sys.argv[1]}/v1"})
DefaultAgent(model, LocalEnvironment(), step_limit=2).run("Say hello.")
