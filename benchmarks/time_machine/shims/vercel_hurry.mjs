// A conversation of the `ai` package against the address given, in which the user says more while a tool is at work.
import { generateText } from 'ai';
import { createAnthropic } from '@ai-sdk/anthropic';

const model = createAnthropic({ baseURL: `${process.argv[2]}/v1`, apiKey: 'k' })('claude-3-5-sonnet-20241022');
await generateText({
  model,
  messages: [
    { role: 'user', content: 'Read the file.' },
    { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 't1', toolName: 'read', input: {} }] },
    { role: 'user', content: 'And hurry.' },
    { role: 'tool', content: [{ type: 'tool-result', toolCallId: 't1', toolName: 'read', output: { type: 'text', value: 'done' } }] },
  ],
});
