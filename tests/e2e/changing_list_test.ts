// A gateway whose list of models changes while it serves. The promises are in the files
// of the checks, of which the full run (tests/support/amount.ts) makes more changes.
import { checkSeveralServers } from "./discovery/several_servers_checks.ts";
import { CHANGES, checkLoad, REQUESTS } from "./reload/load_checks.ts";
import { checkMistakes } from "./reload/mistake_checks.ts";
import { Rig } from "./reload/rig_fixture.ts";

Deno.test("a gateway whose list changes", async (t) => {
  await using rig = await Rig.start();

  // First, because workers keep models that have left the list for two minutes.
  await t.step(
    "a wrong list and a lost key change nothing, and operators hear of both",
    (t) => checkMistakes(t, rig),
  );

  await t.step(
    `${CHANGES} changes lose none of ${REQUESTS} requests`,
    () => checkLoad(rig),
  );

  await t.step(
    "lists of several servers are followed, also when one fails or has 10,000 models",
    () => checkSeveralServers(rig),
  );
});
