// An agent of the `ai` package against the address given: the model asks for two tools at once. They take as many
// milliseconds as the program's further arguments say, so that either may be done first.
import { jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const [back, ...times] = process.argv.slice(2);
const waits = { north: Number(times[0]), south: Number(times[1]) };
const look = tool({
  inputSchema: jsonSchema({ type: 'object', properties: { side: { type: 'string' } }, required: ['side'] }),
  execute: async ({ side }) => {
    await new Promise(done => setTimeout(done, waits[side]));
    return `the ${side} side is dry`;
  },
});
const model = createOpenAICompatible({ name: 'shim', baseURL: `${back}/v1`, apiKey: 'k' })('m');
const run = streamText({ model, prompt: 'Look at both sides.', stopWhen: stepCountIs(3), tools: { look } });
for await (const _ of run.fullStream);
