/** `deno task bench`, see `README.md` beside this file. */
import {
  type Contender,
  readRivals,
  startGateway,
  startModelServer,
  startRival,
} from "./contenders.ts";
import { growth } from "./growth.ts";
import {
  addedLatency,
  idleMemory,
  measureLoop,
  pacedStreams,
  sendsPerAnswer,
  wholeAnswers,
} from "./measure.ts";
import { runCommand } from "./options.ts";
import { Report } from "./report.ts";

const BODY_BYTES = [200, 20 * 1_024, 200 * 1_024];

await runCommand(async (options) => {
  const report = new Report();
  await using direct = await startModelServer();
  const [modelUrl = ""] = direct.baseUrls;
  // Everybody beside everybody.
  await using running = new AsyncDisposableStack();
  const gateways: Contender[] = [running.use(await startGateway(modelUrl))];
  const notes: string[] = [];
  for (const rival of await readRivals(options.rivals)) {
    if (options.beside?.includes(rival.name) === false) continue;
    try {
      gateways.push(running.use(await startRival(rival, modelUrl)));
    } catch (error) {
      notes.push(`${rival.name} left out: ${error}`);
    }
  }
  report.add({ ...idleMemory(gateways), notes });
  const all = [direct, ...gateways];
  for (const each of all) await measureLoop(each, 1);
  for (const bodyBytes of BODY_BYTES) {
    report.add(await wholeAnswers(all, bodyBytes, options));
  }
  report.add(await addedLatency(direct, gateways, options));
  report.add(await sendsPerAnswer(gateways, options));
  for await (const table of pacedStreams(all, options)) report.add(table);
  await running.disposeAsync();
  report.add(await growth(modelUrl, options));
  await report.end(options);
});
