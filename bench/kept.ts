/** What keeping answers costs: requests that ask for it beside those that do not. */
import type { Contender, OurGateway } from "./contenders.ts";
import { costNotes } from "./figures.ts";
import {
  CONNECTIONS,
  inTurn,
  LOOP_COLUMNS,
  measureLoop,
  measureStreams,
  STREAM_COLUMNS,
  STREAMS,
  streamTitle,
  warmUp,
} from "./measure.ts";
import type { Options } from "./options.ts";
import { OURS, type Table } from "./report.ts";

/** What a token of a kept stream may cost more, as a share. */
const TOLERANCE = 0.5;
/** As short as possible, so that the log holds little besides what runs. */
const KEEP = { "x-gateway-keep": "1" };

/** Room for all answers of a run: `up` has one account. */
export const KEPT_ENV = {
  KEEP_BYTES: String(2 ** 30),
  KEEP_ACCOUNT_BYTES: String(2 ** 30),
};

/** A table of streams and one of whole answers, each with what keeping costs more. */
export async function* keptCosts(
  ours: OurGateway,
  options: Options,
): AsyncGenerator<Table> {
  const both: Contender[] = [
    ours,
    {
      ...ours,
      name: `${OURS}: kept`,
      headers: { ...ours.headers, ...KEEP },
    },
  ];
  await warmUp([ours], options.seconds);
  // Not with whole answers: NATS would remove thousands of them while streams run.
  for (const each of both) await measureStreams(each, STREAMS);
  const streams = await inTurn(
    both,
    options,
    (each) => measureStreams(each, STREAMS),
  );
  yield {
    title: streamTitle("kept answers"),
    columns: STREAM_COLUMNS,
    rows: streams,
    notes: costNotes(streams, {
      column: STREAM_COLUMNS.indexOf("CPU us per token"),
      tolerance: TOLERANCE,
    }),
  };
  await warmUp(both, options.seconds);
  const whole = await inTurn(
    both,
    options,
    (each) => measureLoop(each, options.seconds),
  );
  yield {
    title: `Kept answers, whole, ${CONNECTIONS} connections`,
    columns: LOOP_COLUMNS,
    rows: whole,
    notes: costNotes(whole, {
      column: LOOP_COLUMNS.indexOf("CPU s per 1,000"),
      tolerance: TOLERANCE,
    }),
  };
}
