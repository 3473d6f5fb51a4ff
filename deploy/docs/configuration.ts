/** The part of docs/operating.md that is made from the schemas of the services. */
import { envTable } from "@gateway/shared/process/env";
import { WORKER_VARIABLES } from "../../services/chat-worker/config.ts";
import { EDGE_VARIABLES } from "../../services/edge-auth/config.ts";
import { CONSOLE_VARIABLES } from "../../services/key-admin/config.ts";
import { SIMULATOR_VARIABLES } from "../../services/model-simulator/config.ts";

const BEGIN = "<!-- Made by `deno task docs`; changes here are lost. -->";
const END = "<!-- End of what is made. -->";

const SERVICES = [
  ["edge-auth", EDGE_VARIABLES],
  ["chat-worker", WORKER_VARIABLES],
  ["key-admin", CONSOLE_VARIABLES],
  ["model-simulator", SIMULATOR_VARIABLES],
] as const;

/** `page` with its tables as the schemas are now. Throws when it has no place for them. */
export function withConfiguration(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) {
    throw new Error("The page has no place for the configuration tables");
  }
  const tables = SERVICES.map(([name, variables]) =>
    `### ${name}\n\n${envTable(variables)}`
  ).join("\n");
  const before = page.slice(0, begin + BEGIN.length);
  return `${before}\n\n<!-- deno-fmt-ignore-start -->\n\n${tables}\n<!-- deno-fmt-ignore-end -->\n\n${
    page.slice(end)
  }`;
}
