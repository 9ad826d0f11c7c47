// Anthropic's messages at the front, generateText of the `ai` package behind it, with the provider that is named:
// `anthropic` (Anthropic's API behind) or `openrouter` (chat completions behind).
import { generateText, jsonSchema, tool } from 'ai';
import { back, option, serve } from './front.mjs';

const makers = {
  anthropic: async name => (await import('@ai-sdk/anthropic')).createAnthropic({ baseURL: `${back}/v1`, apiKey: 'k' })(name),
  openrouter: async name => (await import('@openrouter/ai-sdk-provider')).createOpenRouter({ baseURL: `${back}/v1`, apiKey: 'k' }).chat(name),
};
const names = new Map();

function part(block) {
  if (block.type === 'tool_use') {
    names.set(block.id, block.name);
    return { type: 'tool-call', toolCallId: block.id, toolName: block.name, input: block.input };
  }
  if (block.type === 'tool_result') {
    const value = typeof block.content === 'string' ? [{ type: 'text', text: block.content }] : block.content;
    const output = { type: 'content', value: value.map(v => (v.type === 'text' ? v : { type: 'media', data: v.source.data, mediaType: v.source.media_type })) };
    return { type: 'tool-result', toolCallId: block.tool_use_id, toolName: names.get(block.tool_use_id), output };
  }
  return { type: 'text', text: block.text };
}

function messages(turn) {
  if (typeof turn.content === 'string') return [turn];
  const parts = turn.content.map(part);
  if (turn.role === 'assistant') return [{ role: 'assistant', content: parts }];
  const results = parts.filter(p => p.type === 'tool-result'), said = parts.filter(p => p.type !== 'tool-result');
  return [...(results.length ? [{ role: 'tool', content: results }] : []), ...(said.length ? [{ role: 'user', content: said }] : [])];
}

serve(async body => {
  const model = await makers[option](body.model);
  const providerOptions = body.thinking ? { anthropic: { thinking: body.thinking } } : undefined;
  const tools = body.tools && Object.fromEntries(body.tools.map(t => [t.name, tool({ description: t.description, inputSchema: jsonSchema(t.input_schema) })]));
  const reply = await generateText({
    model, tools, providerOptions, messages: body.messages.flatMap(messages), system: body.system, maxOutputTokens: body.max_tokens, maxRetries: 0,
  });
  return {
    id: 'shim', type: 'message', role: 'assistant', model: body.model, content: [{ type: 'text', text: reply.text }],
    stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: reply.usage.inputTokens, output_tokens: reply.usage.outputTokens },
  };
});
