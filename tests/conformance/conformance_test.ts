/**
 * Guarantee: the wire contract of an OpenAI-compatible service, case by case, as
 * collected from the SDKs, OpenAI's schema and the suites of other servers.
 */
import { startCluster } from "../support/cluster.ts";
import { answerCases } from "./answers.ts";
import { authenticationCases } from "./authentication.ts";
import { createContext } from "./context.ts";
import { referenceCases } from "./reference.ts";
import { routingCases } from "./routing.ts";
import { streamingCases } from "./streaming.ts";
import { toolCases } from "./tools.ts";
import { validationCases } from "./validation.ts";

Deno.test("the wire contract", async (t) => {
  await using cluster = await startCluster({ workers: 2 });
  const context = createContext(cluster);
  await t.step("A authentication", (t) => authenticationCases(t, context));
  await t.step("B answers", (t) => answerCases(t, context));
  await t.step("C streaming", (t) => streamingCases(t, context));
  await t.step("D tools", (t) => toolCases(t, context));
  await t.step("E validation", (t) => validationCases(t, context));
  await t.step("F and G routing", (t) => routingCases(t, context));
  // Last, because it compares all of these with the description of the API.
  await t.step("H reference", (t) => referenceCases(t, context));
});
