"""Words that rows of every run use: small JSON is compressed against them, so that a row need not spell them out."""

from __future__ import annotations

#: Part of the format of stores: never change it, for what was packed with it cannot be read with another. What is likelier stands later.
FAMILIAR = (
    b'{"error":{"message":"","type":"","code":null}}{"role":"tool","tool_call_id":"call_","content":[{"type":"text","text":"'
    b'{"compressed":{"messages":[{"tokens_before":,"tokens_after":,"opaque":"turn_responses":["facts":{"answer":"cached":true,"false,'
    b'{"id":"","mark":null,"matched_by":"serial","matched_by":"header","matched_by":"key","wire":"anthropic","wire":"openai-chat","method":'
    b'"POST","path":"/v1/messages","path":"/v1/chat/completions","started":17,"seconds":0.,"ttft":0.,"status":200,"model":"","stream":false,'
    b'"tokens":,"exact":true,"uncounted_parts":0,"bytes_in":,"bytes_out":,"window":1,"facts":{"roles":["system","user","assistant"'
    b'{"source":"tap","sent":,"forwarded":,"billed":,"calls":1,"client_calls":1,"extra_calls":0,"other_calls":0,"late":0,"exact":false,'
    b'"bytes":,"uncounted_parts":0,"matched_by":"key","prefix_tokens":0,"truncated":false,"authorization_forwarded":true,'
    b'"text_changed":false,"messages_changed":0,"parameters_changed":[],"tools_changed":false,"cache_read":0,"cache_write":0,'
    b'{"accuracy":1.0,"accuracy":0.0,"score":0.5,"pass":1.0,"judge":{"reason":"","rouge_l":0.,"bleu":0.,"length":,"correct":1.0,'
    b'{"f1":0.0,"exact_match":0.0,"recall":0.0,"contains":0.0}{"f1":0.6666666666666666,"exact_match":0.0,"recall":0.5,"contains":1.0}'
    b'{"f1":1.0,"exact_match":1.0,"recall":1.0,"contains":1.0}'
    b'{"setup":1,"budget":,"qa_type":"","shape":"plain-user","model":"claude-sonnet-4-5-20250929","model":"claude-haiku-4-5-20251001",'
    b'"model":"gpt-4o-mini","prompt_tokens":,"completion_tokens":,"total_tokens":,"finish_reason":"length"}'
    b'"finish_reason":"tool_calls"}"finish_reason":"end_turn"}'
    b'{"response":"The "api_usage":{"prompt_tokens":1,"completion_tokens":,"total_tokens":},"finish_reason":"stop"}'
    b'{"role":"assistant","content":"'
    b'{"input_tokens":1,"output_tokens":,"cache_read":0,"reasoning_tokens":0,"cost":0.000,"ttft":0.,"in_flight":1,"calls":1}'
)
