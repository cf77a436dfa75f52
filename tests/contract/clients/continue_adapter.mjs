// Continue's own adapters, driven by JSON lines.
// In:  {provider, apiBase, apiKey, method, body, chunks?}; hangs up after so many `chunks`.
// Out: {chunk} for each, then {done: true} or {error: {name, status, message}}.
import { createInterface } from "node:readline";
import { constructLlmApi } from "@continuedev/openai-adapters";

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

async function drive({ provider, apiBase, apiKey, method, body, chunks = Infinity }) {
  const api = constructLlmApi({ provider, apiBase, apiKey });
  const result = api[method](body, new AbortController().signal);
  if (!(Symbol.asyncIterator in result)) {
    say({ chunk: await result });
    return;
  }
  for await (const chunk of result) {
    say({ chunk });
    if (--chunks <= 0) break;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    await drive(JSON.parse(line));
    say({ done: true });
  } catch ({ name, status, message }) {
    say({ error: { name, status, message } });
  }
}
