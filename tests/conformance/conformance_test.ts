// Promise: the wire contract of an OpenAI-compatible service, case by case, as
// collected from the SDKs, OpenAI's schema and the suites of other servers.
import { startCluster } from "../support/cluster.ts";
import { answerCases } from "./answers.ts";
import { authenticationCases } from "./authentication.ts";
import { type Cases, createContext } from "./context.ts";
import { referenceCases } from "./reference.ts";
import { routingCases } from "./routing.ts";
import { streamingCases } from "./streaming.ts";
import { toolCases } from "./tools.ts";
import { validationCases } from "./validation.ts";

const CASES: [string, Cases][] = [
  ["A authentication", authenticationCases],
  ["B answers", answerCases],
  ["C streaming", streamingCases],
  ["D tools", toolCases],
  ["E validation", validationCases],
  ["F and G routing", routingCases],
  // Last, because it compares all of these with the description of the API.
  ["H reference", referenceCases],
];

Deno.test("the wire contract", async (t) => {
  await using cluster = await startCluster({ workers: 2 });
  const context = createContext(cluster);
  for (const [name, cases] of CASES) {
    await t.step(name, (t) => cases(t, context));
  }
});
