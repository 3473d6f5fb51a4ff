/**
 * The tables of what is asked besides plain chat: forwarded endpoints, beside chat and
 * beside others, and model servers with limits.
 */
import type { Contender } from "./contenders.ts";
import {
  CHAT,
  type Lane,
  LIMITED_LANES,
  TEXT_LANES,
  VECTOR_LANES,
} from "./lanes.ts";
import { requestTo, runLoop } from "./load.ts";
import {
  CONNECTIONS,
  inTurn,
  LOOP_COLUMNS,
  measureLoop,
  measureStreams,
  SMALL_BYTES,
  STREAM_COLUMNS,
  STREAMS,
  streamTitle,
  warmUp,
} from "./measure.ts";
import type { Options } from "./options.ts";
import { OURS, type Table } from "./report.ts";

/** A table for each lane, whole and streamed, and one that compares ours with chat. */
export async function* forwardedLanes(
  contenders: readonly Contender[],
  options: Options,
): AsyncGenerator<Table> {
  const ours = contenders.find(({ name }) => name === OURS);
  if (ours !== undefined) yield await besideChat(ours, options);
  for (const lane of [...TEXT_LANES, ...VECTOR_LANES]) {
    const { able, notes } = await ableTo(lane, contenders, options);
    const rows = await inTurn(
      able,
      options,
      (contender) => measureLoop(contender, options.seconds),
    );
    const title = `${lane.name}, whole, ${CONNECTIONS} connections`;
    yield { title, columns: LOOP_COLUMNS, rows, notes };
    if (!TEXT_LANES.includes(lane)) continue;
    const streamed = await inTurn(
      able,
      options,
      (contender) => measureStreams(contender, STREAMS),
    );
    yield {
      title: streamTitle(lane.name),
      columns: STREAM_COLUMNS,
      rows: streamed,
    };
  }
}

/** Who answers a request of a lane, warmed up, and why the others are left out. */
async function ableTo(
  lane: Lane,
  contenders: readonly Contender[],
  { seconds }: Options,
) {
  const able: Contender[] = [];
  const notes: string[] = [];
  for (const contender of contenders) {
    const one = { ...contender, lane };
    const requests = [requestTo(one, SMALL_BYTES)];
    const once = { connections: 1, seconds: 0, requests };
    const { wrong: [problem] } = await runLoop(one, once);
    if (problem !== undefined) {
      notes.push(`${contender.name} left out: ${problem}`);
      continue;
    }
    await warmUp([one], seconds);
    able.push(one);
  }
  return { able, notes };
}

/** What a token costs on each endpoint of ours, in turn; chat is the gateway itself. */
async function besideChat(ours: Contender, options: Options): Promise<Table> {
  const lanes = withChat(ours, TEXT_LANES);
  await warmUp(lanes, options.seconds);
  for (const each of lanes) await measureStreams(each, STREAMS);
  const rows = await inTurn(
    lanes,
    options,
    (each) => measureStreams(each, STREAMS),
  );
  return {
    title: streamTitle("forwarding beside chat"),
    columns: STREAM_COLUMNS,
    rows,
  };
}

/** Chat of ours, which is the gateway itself, and these lanes beside it. */
const withChat = (ours: Contender, lanes: readonly Lane[]): Contender[] =>
  [CHAT, ...lanes].map((lane) => ({
    ...ours,
    lane,
    name: lane === CHAT ? OURS : `${OURS}: ${lane.name}`,
  }));

/** What ours costs where model servers have limits, beside one that has none. */
export async function* serverLimits(
  ours: Contender,
  options: Options,
): AsyncGenerator<Table> {
  const lanes = withChat(ours, LIMITED_LANES);
  await warmUp(lanes, options.seconds);
  const whole = await inTurn(
    lanes,
    options,
    (each) => measureLoop(each, options.seconds),
  );
  const name = "limits of model servers";
  const title = `${name}, whole, ${CONNECTIONS} connections`;
  yield { title, columns: LOOP_COLUMNS, rows: whole };
  const rows = await inTurn(
    lanes,
    options,
    (each) => measureStreams(each, STREAMS),
  );
  yield { title: streamTitle(name), columns: STREAM_COLUMNS, rows };
}
