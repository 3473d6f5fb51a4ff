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
  measureLoop,
  memory,
  pacedStreams,
  sendsPerAnswer,
  wholeAnswers,
} from "./measure.ts";
import { type Options, runCommand } from "./options.ts";
import { Report } from "./report.ts";

const BODY_BYTES = [200, 20 * 1_024, 200 * 1_024];

async function main(options: Options): Promise<void> {
  const report = new Report();
  await using direct = await startModelServer();
  await compare(direct, options, report);
  for await (const table of growth(direct.url, options)) report.add(table);
  await report.end(options);
}

/** Everybody beside everybody. */
async function compare(
  direct: Contender & { url: string },
  options: Options,
  report: Report,
): Promise<void> {
  await using running = new AsyncDisposableStack();
  const gateways: Contender[] = [running.use(await startGateway(direct.url))];
  for (const rival of await readRivals(options.rivals)) {
    if (options.beside?.includes(rival.name) === false) continue;
    try {
      gateways.push(running.use(await startRival(rival, direct.url)));
    } catch (error) {
      report.leaveOut(rival.name, error);
    }
  }
  report.add(memory(gateways));
  const all = [direct, ...gateways];
  for (const each of all) await measureLoop(each, 1);
  for (const bodyBytes of BODY_BYTES) {
    report.add(await wholeAnswers(all, bodyBytes, options));
  }
  report.add(await addedLatency(direct, gateways, options));
  report.add(await sendsPerAnswer(gateways, options));
  for await (const table of pacedStreams(all, options.streams, options)) {
    report.add(table);
  }
}

await runCommand(main);
