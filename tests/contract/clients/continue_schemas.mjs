// The schemas that Continue publishes, driven by JSON lines.
// In:  {event} as posted, or {config}, the text of a config.yaml.
// Out: {parsed} (what Continue keeps of it) or {issues}.
import { createInterface } from "node:readline";
import { configYamlSchema, devDataVersionedSchemas } from "@continuedev/config-yaml";
import { parse } from "yaml";

function check({ event, config }) {
  if (config !== undefined) return configYamlSchema.safeParse(parse(config));
  return devDataVersionedSchemas[event.schema][event.level][event.name].safeParse(event.data);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { data, error } = check(JSON.parse(line));
  process.stdout.write(JSON.stringify(error ? { issues: error.issues } : { parsed: data }) + "\n");
}
