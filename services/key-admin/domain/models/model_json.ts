/** Models, their servers and overrides as commands and the admin API show them. */
import { scopeOf } from "@gateway/shared/models/kinds";
import { isoTime } from "../keys/key_json.ts";
import { type ModelView, stateOf } from "./model_views.ts";
import type { StoredOverride } from "./override_store.ts";

/** The scope with which keys may use a model; null: only workers have it. */
export const scopeForModel = ({ kind }: Pick<ModelView, "kind">) =>
  kind && scopeOf(kind);

/** A model with its servers, and what workers have seen of them in the last hour. */
export const modelJson = (model: ModelView, nowMs: number) => ({
  id: model.id,
  kind: model.kind,
  scope: scopeForModel(model),
  waiting: {
    requests: model.waiting?.requests ?? 0,
    oldest_ms: Math.round(model.waiting?.oldestMs ?? 0),
  },
  servers: model.servers.map((server) => ({
    name: server.backend,
    address: server.address,
    preference: server.preference,
    weight: server.weight,
    state: stateOf(server).word.toLowerCase().replaceAll(/[ -]/g, "_"),
    note: stateOf(server).note,
    probe: server.probe && {
      failed: server.probe.isFailed,
      at: isoTime(nowMs - server.probe.ageMs),
    },
    workers: server.workers,
    in_flight: server.inFlight,
    requests: server.requests,
    failures: server.failures,
    first_token_ms: server.firstTokenMs,
    tokens_per_second: server.tokensPerSecond,
    last_error: server.error &&
      { text: server.error.text, at: isoTime(nowMs - server.error.ageMs) },
  })),
});

/** An override, and who has made it. */
export const overrideJson = ({ atMs, ...override }: StoredOverride) => ({
  ...override,
  at: isoTime(atMs),
});
