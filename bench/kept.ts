/** What keeping answers costs: requests that ask for it beside those that do not. */
import type { Contender, OurGateway } from "./contenders.ts";
import { compareCosts } from "./figures.ts";
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
import { OURS, type Row, type Table } from "./report.ts";

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
  for (const each of both) await warmUp(each, options.seconds);
  const streams = await inTurn(
    both,
    options,
    (each) => measureStreams(each, STREAMS),
  );
  yield {
    title: streamTitle("kept answers"),
    columns: STREAM_COLUMNS,
    rows: streams,
    notes: [beside(streams, STREAM_COLUMNS.indexOf("CPU us per token"))],
  };
  const whole = await inTurn(
    both,
    options,
    (each) => measureLoop(each, options.seconds),
  );
  yield {
    title: `Kept answers, whole, ${CONNECTIONS} connections`,
    columns: LOOP_COLUMNS,
    rows: whole,
    notes: [beside(whole, LOOP_COLUMNS.indexOf("CPU s per 1,000"))],
  };
}

/** How the second row compares with the first one, by the rounds. */
function beside(rows: readonly Row[], column: number): string {
  const [without = [], kept = []] = rows.map(({ rounds }) =>
    rounds.map((round) => round[column] ?? NaN)
  );
  const { ratio, isWorse } = compareCosts(without, kept, TOLERANCE);
  const verdict = isWorse ? "too much" : "ok";
  return `kept: ${ratio.toFixed(3)} times that without, ${verdict}`;
}
