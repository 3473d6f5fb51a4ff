/** Models and their servers, as the console and the command line show them. */
import type { Override } from "@gateway/shared/backends/overrides";
import type { BackendView } from "@gateway/shared/backends/reports";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { WaitingOfModel, WaitingRequests } from "./waiting_requests.ts";

/** A server of a model with its state, as workers report it. */
export interface ServerView extends BackendView {
  /** `http://vllm:8000`; null: the list that is known here does not have it. */
  address: string | null;
}

/** A model with its servers. */
export interface ModelView {
  id: string;
  aliases: readonly string[];
  /** Null: the list that is known here does not have it. */
  kind: ModelKind | null;
  servers: readonly ServerView[];
  /** What waits for it at edges; null: nothing. */
  waiting: WaitingOfModel | null;
}

/** Reports about models: of workers about their servers, of edges about what waits. */
export interface ModelReports {
  readonly backends: { read(): readonly BackendView[] };
  readonly waiting: Pick<WaitingRequests, "read">;
}

/**
 * The models of the list, in its order, with what workers tell of their servers; then
 * those that only workers have, because their list is another one.
 */
export function modelViews(
  catalog: Pick<Catalog, "values"> | undefined,
  { backends, waiting }: ModelReports,
): ModelView[] {
  const rowsByModel = Map.groupBy(backends.read(), ({ model }) => model);
  const waits = waiting.read();
  const models = [...catalog?.values() ?? []].map((model) => {
    const rows = rowsByModel.get(model.id) ?? [];
    rowsByModel.delete(model.id);
    return { ...viewOf(model, rows), waiting: waits.get(model.id) ?? null };
  });
  const others = [...rowsByModel].map(([id, rows]): ModelView => ({
    id,
    aliases: [],
    kind: null,
    servers: rows.map(unknownServer).sort(byPreference),
    waiting: waits.get(id) ?? null,
  }));
  return [...models, ...others];
}

function viewOf(
  { id, aliases, kind, backends }: ModelConfig,
  rows: readonly BackendView[],
): Omit<ModelView, "waiting"> {
  const left = new Map(rows.map((row) => [row.backend, row]));
  const fromCatalog = backends.map(
    ({ name, preference, weight, base_url: url }) => {
      const row = left.get(name) ?? silentServer(id, name);
      left.delete(name);
      const configured = row.workers > 0 ? {} : { preference, weight };
      return { ...row, ...configured, address: new URL(url).origin };
    },
  );
  const servers = [...fromCatalog, ...left.values().map(unknownServer)];
  return { id, aliases, kind, servers: servers.sort(byPreference) };
}

/** A server of which no worker has told. */
const silentServer = (model: string, backend: string): BackendView => ({
  model,
  backend,
  preference: 0,
  weight: 1,
  workers: 0,
  state: "closed",
  stateWorkers: 0,
  openMs: null,
  limitedMs: null,
  drainedWorkers: 0,
  inFlight: 0,
  requests: 0,
  failures: 0,
  firstTokenMs: null,
  tokensPerSecond: null,
  error: null,
  probe: null,
});

const unknownServer = (row: BackendView): ServerView => ({
  ...row,
  address: null,
});

const byPreference = (a: ServerView, b: ServerView): number =>
  a.preference - b.preference;

/** The models whose id, alias or server has all of the words. */
export function search(
  models: readonly ModelView[],
  words: string,
): readonly ModelView[] {
  const searchWords = words.toLowerCase().split(/\s+/).filter((word) =>
    word !== ""
  );
  return models.filter(({ id, aliases, servers }) => {
    const names = servers.map(({ backend, address }) =>
      `${backend} ${address ?? ""}`
    );
    const text = [id, ...aliases, ...names].join(" ").toLowerCase();
    return searchWords.every((word) => text.includes(word));
  });
}

/**
 * The servers of a model that are in use, but for one: those that are neither drained
 * by an operator nor gone from the list.
 */
export function othersInUse(
  { id, servers }: Pick<ModelView, "id" | "servers">,
  backend: string,
  overrides: readonly Override[],
): readonly ServerView[] {
  const drained = new Set(
    overrides.flatMap((each) =>
      each.what === "drain" && each.model === id ? [each.backend] : []
    ),
  );
  return servers.filter((server) =>
    server.backend !== backend && !drained.has(server.backend)
  );
}

/** The state of a server: one word, and details. */
export interface ServerState {
  word:
    | "Not reported"
    | "Draining"
    | "Drained"
    | "Open"
    | "Half-open"
    | "Limited"
    | "Closed";
  note: string;
}

/** The state of a server, and how it has answered its last probe if it was probed. */
export function stateOf(server: BackendView): ServerState {
  const { word, note } = wordOf(server);
  return { word, note: joined(note, probeNote(server)) };
}

function probeNote({ probe }: BackendView): string {
  if (probe === null) return "";
  const ago = `${seconds(probe.ageMs)} ago`;
  return probe.isFailed ? `probe failed ${ago}` : `probed ${ago}`;
}

/** Overrides of operators count before anything else. */
function wordOf(server: BackendView): ServerState {
  const { workers, drainedWorkers, inFlight, state, limitedMs } = server;
  if (workers === 0) return { word: "Not reported", note: "No worker has it" };
  if (drainedWorkers > 0) {
    return {
      word: inFlight > 0 ? "Draining" : "Drained",
      note: on(server, drainedWorkers),
    };
  }
  if (state === "open") {
    const waits = server.openMs === null
      ? ""
      : `tried again in ${seconds(server.openMs)}`;
    return { word: "Open", note: joined(on(server), waits) };
  }
  if (state === "half-open") {
    return {
      word: "Half-open",
      note: joined(on(server), "the next request decides"),
    };
  }
  if (limitedMs !== null) {
    return {
      word: "Limited",
      note: `the server asked for a pause of ${seconds(limitedMs)}`,
    };
  }
  return { word: "Closed", note: "" };
}

/** Returns `for 1 of 3 workers`, or an empty text for all of them. */
function on(
  { workers, stateWorkers }: BackendView,
  count: number = stateWorkers,
): string {
  return count === workers ? "" : `for ${count} of ${workers} workers`;
}

const joined = (...parts: readonly string[]): string =>
  parts.filter((part) => part !== "").join(", ");

const MS_PER_SECOND = 1_000;
const seconds = (ms: number): string => `${Math.ceil(ms / MS_PER_SECOND)} s`;

/** `85 ms`, `1.2 s`, `14 s`: a time to compare with others. */
export function shortTime(ms: number): string {
  if (ms < MS_PER_SECOND) return `${Math.round(ms)} ms`;
  const inSeconds = ms / MS_PER_SECOND;
  return `${inSeconds < 10 ? inSeconds.toFixed(1) : Math.round(inSeconds)} s`;
}

const SECONDS_PER_MINUTE = 60;

/** `12 s`, `3 min 12 s`, `2 h 5 min`: for how long something has lasted. */
export function ageText(ms: number): string {
  const seconds = Math.floor(ms / MS_PER_SECOND);
  const minutes = Math.floor(seconds / SECONDS_PER_MINUTE);
  const hours = Math.floor(minutes / SECONDS_PER_MINUTE);
  if (minutes === 0) return `${seconds} s`;
  return hours === 0
    ? `${minutes} min ${seconds % SECONDS_PER_MINUTE} s`
    : `${hours} h ${minutes % SECONDS_PER_MINUTE} min`;
}

/** `12 requests wait, the oldest for 34 s` */
export const waitingText = ({ requests, oldestMs }: WaitingOfModel): string =>
  `${requests.toLocaleString("en")} request${
    requests === 1 ? " waits" : "s wait"
  }, the oldest for ${shortTime(oldestMs)}`;

/** `48`, `3.2`: a rate to compare with others. */
export const shortRate = (rate: number): string =>
  rate < 10 ? rate.toFixed(1) : String(Math.round(rate));
