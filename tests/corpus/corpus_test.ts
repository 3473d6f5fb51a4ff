/**
 * What real clients send and real servers answer, through edge, bus and worker: a file
 * below `chat/` for each case. `case_file.ts` describes the format.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type Catalog,
  DEFAULT_MODEL_ID,
  parseCatalog,
} from "@gateway/shared/models/catalog";
import {
  type ScriptedServer,
  startScriptedServer,
  type Step,
} from "../support/model_servers/scripted_server.ts";
import { CLOSE, PAUSE } from "../support/model_servers/model_answers.ts";
import { amountOf } from "../support/amount.ts";
import { chat, type OpenGateway } from "../support/gateway/open.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import {
  type InProcessEdge,
  startEdge,
} from "../support/gateway/in_process_edge.ts";
import { startWorker } from "../support/gateway/in_process_worker.ts";
import { readSources } from "../support/repository/source_files.ts";
import { until } from "../support/wait_for.ts";
import { assembled } from "./assembled.ts";
import { type CorpusCase, parseCase } from "./case_file.ts";

/** For edges, which call no model server. */
const NOWHERE = "http://127.0.0.1:9/v1";
/** The model of cases whose backend has members of its own. */
const OTHER_MODEL_ID = "other";

/** On a busy machine, no edge may take its worker for lost and offer a job twice. */
const SLOWER = 20;

/** A model with these members, whose only backend has those. */
function catalogOf(
  id: string,
  { model, backend }: Pick<CorpusCase, "model" | "backend">,
  base_url: string = NOWHERE,
): Catalog {
  const backends = [{ type: "openai", model: "theirs", base_url, ...backend }];
  return parseCatalog({ models: [{ id, ...model, backends }] });
}

const isEmpty = (members: object) => Object.keys(members).length === 0;

/** Enough for `data: {`. */
const CRUMBS = 7;
/** Sends a response in some steps. */
type Deliver = (response: Uint8Array) => Step[];

/** What comes in one packet is read at once; what comes apart, event by event. */
const DELIVERIES: readonly [how: string, stepsOf: Deliver][] = Object.entries({
  "in one packet": (response: Uint8Array) => [{ send: response }, CLOSE],
  // The head in one packet, and the first bytes of the body each in one of their own.
  "in crumbs": (response: Uint8Array) => {
    const at = piecesOf(response, /(?<=\r\n\r\n)/)[0]?.length ?? 0;
    const crumbs = [...response.subarray(at, at + CRUMBS)]
      .map((byte) => Uint8Array.of(byte));
    return [
      { send: response.subarray(0, at) },
      ...crumbs.flatMap((send) => [{ send }, PAUSE]),
      { send: response.subarray(at + CRUMBS) },
      CLOSE,
    ];
  },
  "event by event": (response: Uint8Array) => [
    ...piecesOf(response, /(?<=\n\n)/).flatMap((send) => [{ send }, PAUSE]),
    CLOSE,
  ],
});

/** All deliveries; in the usual run the first, and the others by turns. */
function deliveriesOf(nth: number): typeof DELIVERIES {
  const [first = assert.fail(), ...others] = DELIVERIES;
  const from = nth % others.length;
  const count = amountOf({ usual: 1, full: others.length });
  return [first, ...[...others, ...others].slice(from, from + count)];
}

/** Bytes, cut where a pattern for them as characters matches. */
function piecesOf(bytes: Uint8Array, where: RegExp): Uint8Array[] {
  const text = Buffer.from(bytes).toString("latin1");
  return text.split(where).map((piece) => Buffer.from(piece, "latin1"));
}

Deno.test("every case of the corpus is read through the gateway", async (t) => {
  await using server = startScriptedServer({ reply: () => [CLOSE] });
  const plain = { model: {}, backend: {} };
  const door = { catalog: catalogOf(DEFAULT_MODEL_ID, plain) };
  await using gateway = await startGateway("open", { door, slower: SLOWER });
  await gateway.addWorker({ baseUrl: server.baseUrl });
  const files = readSources(["tests/corpus/chat"], /\.txt$/);
  assert.ok(files.length > 0);
  for (const [nth, { path, text }] of files.entries()) {
    const name = path.replace(/^.*\/|\.txt$/g, "");
    const parsedCase = parseCase(text);
    await using place = await placeFor(parsedCase, { gateway, server });
    for (const [how, stepsOf] of deliveriesOf(nth)) {
      server.reply = () => stepsOf(parsedCase.response ?? new Uint8Array());
      await t.step(`${name} ${how}`, () => check(parsedCase, place, server));
    }
  }
});

async function check(
  { request, response, status, answer, forwarded }: CorpusCase,
  place: Place,
  server: ScriptedServer,
): Promise<void> {
  const before = server.requests.length;
  const reply = await chat(place.edge, { model: place.model, ...request });
  const text = await reply.text();
  assert.equal(reply.status, status, text.slice(0, 500));
  assert.partialDeepStrictEqual(assembled(text), answer);
  const received = server.requests.slice(before);
  // More than one would cost the work of the model twice.
  assert.equal(received.length, response === null ? 0 : 1);
  assert.partialDeepStrictEqual(received[0]?.json() ?? {}, forwarded);
}

/** The edge and the model of a case. */
interface Place extends AsyncDisposable {
  readonly edge: InProcessEdge;
  readonly model: string;
}

/** Starts what a case needs of its own, which ends with the place. */
async function placeFor(
  { model, backend }: CorpusCase,
  { gateway, server }: { gateway: OpenGateway; server: ScriptedServer },
): Promise<Place> {
  await using owned = new AsyncDisposableStack();
  const id = isEmpty(backend) ? DEFAULT_MODEL_ID : OTHER_MODEL_ID;
  let { edge } = gateway;
  if (!isEmpty(model) || !isEmpty(backend)) {
    const { baseUrl } = server;
    const catalog = catalogOf(id, { model, backend }, baseUrl);
    const servers = [gateway.nats.server];
    const options = { servers, door: { catalog }, slower: SLOWER };
    edge = owned.use(await startEdge(options));
    if (!isEmpty(backend)) {
      const worker = { servers, backend: { baseUrl }, catalog };
      owned.use(await startWorker(worker));
    }
  }
  const { workers } = edge.dispatcher;
  await until(() => workers.hasWorkerFor({ model: id, family: "chat" }));
  const all = owned.move();
  return {
    edge,
    model: id,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
