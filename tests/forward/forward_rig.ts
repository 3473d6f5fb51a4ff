/** An open gateway whose models are on scripted servers, for forwarded requests. */
import assert from "node:assert/strict";
import { type CatalogFile, parseCatalog } from "@gateway/shared/models/catalog";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RunOutcome } from "../../services/edge-auth/dispatch/outcome.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { InProcessWorker } from "../support/gateway/in_process_worker.ts";
import type { OpenGateway } from "../support/gateway/open.ts";
import {
  type Reply,
  type ScriptedServer,
  startScriptedServer,
  type WholeRequest,
} from "../support/model_servers/scripted_server.ts";

/** A key that the gateway admits. */
export const KEY = mintKey(randomBytes);
/** On a busy machine, no edge may take its worker for lost and offer a job twice. */
const SLOWER = 20;

type Model = CatalogFile["models"][number];
type Backend = Model["backends"][number];

/** A running gateway, and the servers of its models. */
export interface ForwardRig extends AsyncDisposable {
  readonly servers: ScriptedServer[];
  readonly gateway: OpenGateway;
  readonly worker: InProcessWorker;
  /** The first request of the first server, as soon as it has come. */
  request(): Promise<WholeRequest>;
  /** How requests ended, once for each settlement. */
  settlements(): (RunOutcome | null)[];
  /** Posts JSON to a path of the API. */
  post(
    path: string,
    body: string,
    headers?: Record<string, string>,
  ): Promise<Response>;
}

/**
 * Starts it with an embedding, a rerank and a chat model, each on all these servers.
 */
export const setup = (...replies: Reply[]): Promise<ForwardRig> =>
  setupWith({}, ...replies);

/** What differs in the chat model and its backends. */
interface Changes {
  model?: Partial<Model>;
  backend?: Partial<Backend>;
  /** Another backend of the chat model, which is tried before all others. */
  first?: Partial<Backend>;
}

/** Starts it with changes of its chat model and of its backends. */
export async function setupWith(
  { streamHeadMs, ...changes }: Changes & {
    /** Its clock is then not slowed down. */
    streamHeadMs?: number;
  },
  ...replies: Reply[]
): Promise<ForwardRig> {
  await using starting = new AsyncDisposableStack();
  const servers = replies.map((reply) =>
    starting.use(startScriptedServer({ reply }))
  );
  const catalog = parseCatalog({ models: modelsOn(servers, changes) });
  const isTimed = streamHeadMs !== undefined;
  const door = { catalog, ...isTimed && { streamHeadMs } };
  const slower = isTimed ? 1 : SLOWER;
  const gateway = starting.use(await startGateway("open", { door, slower }));
  const baseUrl = servers[0]?.baseUrl ?? "";
  const worker = await gateway.addWorker({ baseUrl }, { catalog });
  const running = starting.move();
  return {
    servers,
    gateway,
    worker,
    request: () => servers[0]?.request(1) ?? assert.fail("no server"),
    settlements: () => gateway.edge.settlements(),
    post: (path, body, headers = {}) =>
      fetch(`${gateway.baseUrl()}/${path}`, {
        method: "POST",
        body,
        headers: {
          authorization: `Bearer ${KEY}`,
          "content-type": "application/json",
          ...headers,
        },
      }),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

function modelsOn(
  servers: readonly ScriptedServer[],
  { model = {}, backend = {}, first }: Changes,
): Model[] {
  const backends = servers.map(({ baseUrl }, index): Backend => ({
    type: "openai",
    base_url: baseUrl,
    model: "BAAI/bge-m3",
    api_key_env: "KEY",
    preference: index + 1,
  }));
  const speaking = backends.map((each): Backend => (
    { ...each, dialect: "vllm", ...backend }
  ));
  const before = speaking.slice(0, first === undefined ? 0 : 1).map((each) => (
    { ...each, preference: 0, name: "first", ...first }
  ));
  const talk = { ...model, backends: [...before, ...speaking] };
  return [
    { id: "embed", kind: "embedding", backends },
    { id: "order", kind: "rerank", backends },
    { id: "talk", output_tokens: 1_000, ...talk },
    { id: "plain", backends },
  ];
}
