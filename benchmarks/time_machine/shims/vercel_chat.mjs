// Chat completions at the front, streamText of the `ai` package with an OpenAI-compatible provider behind it.
import { jsonSchema, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { back, serve } from './front.mjs';

serve(async body => {
  const model = createOpenAICompatible({ name: 'shim', baseURL: `${back}/v1`, apiKey: 'k' })(body.model);
  const tools = Object.fromEntries(
    (body.tools ?? []).map(({ function: f }) => [f.name, tool({ description: f.description, inputSchema: jsonSchema(f.parameters) })]));
  const stream = streamText({ model, messages: body.messages, tools, maxRetries: 0, onError: () => {} });
  let text = '', finish = null, usage = {};
  const calls = [];
  for await (const part of stream.fullStream) {
    if (part.type === 'error') throw part.error instanceof Error ? part.error : new Error(String(part.error));
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'tool-call') calls.push(part);
    if (part.type === 'finish') [finish, usage] = [part.finishReason, part.totalUsage ?? {}];
  }
  const message = { role: 'assistant', content: text || null };
  if (calls.length)
    message.tool_calls = calls.map(c => ({ id: c.toolCallId, type: 'function', function: { name: c.toolName, arguments: JSON.stringify(c.input) } }));
  const names = { 'tool-calls': 'tool_calls', other: 'stop', unknown: 'stop' };
  return {
    id: 'shim', object: 'chat.completion', created: 1, model: body.model,
    choices: [{ index: 0, message, finish_reason: names[finish] ?? finish }],
    usage: { prompt_tokens: usage.inputTokens, completion_tokens: usage.outputTokens, total_tokens: usage.totalTokens },
  };
});
