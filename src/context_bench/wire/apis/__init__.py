"""One file per wire: OpenAI chat completions, OpenAI Responses, Anthropic messages. `llm.wire` is the door."""
