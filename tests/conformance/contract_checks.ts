// Promise: the wire contract of an OpenAI-compatible service, case by case, as
// collected from the SDKs, OpenAI's schema and the suites of other servers.
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { answerCases, streamingCases, toolCases } from "./answers.ts";
import { type Cases, createContext } from "./context.ts";
import { referenceCases } from "./reference.ts";
import {
  authenticationCases,
  routingCases,
  validationCases,
} from "./requests.ts";

const GROUPS: { [title: string]: Cases } = {
  "A authentication": authenticationCases,
  "B answers": answerCases,
  "C streaming": streamingCases,
  "D tools": toolCases,
  "E validation": validationCases,
  "F and G routing": routingCases,
  // Last, because it compares all of these with the description of the API.
  "H reference": referenceCases,
};

/** Tries every case of the contract with this gateway. */
export async function checkContract(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const context = createContext(gateway);
  for (const [group, cases] of Object.entries(GROUPS)) {
    await t.step(group, async (t) => {
      for (const [title, run] of Object.entries(cases)) {
        await t.step(title, async () => await run(context));
      }
    });
  }
}
