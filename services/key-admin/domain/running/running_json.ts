/** A running request as commands and the admin API show it. */
import { publicRequestId } from "@gateway/shared/process/ids";
import { isoTime } from "../keys/key_json.ts";
import type { RunningView } from "./running_requests.ts";

const MS_PER_SECOND = 1_000;

/** The time since which it runs is that of `nowMs` less its age. */
export const runningJson = (
  request: RunningView,
  { nowMs, names }: {
    nowMs: number;
    /** The addresses of owners and the names of projects, by id. */
    names: ReadonlyMap<string, string>;
  },
) => ({
  request_id: publicRequestId(request.requestId),
  account_id: request.account,
  account: names.get(request.account) ?? request.account,
  key_id: request.keyId,
  kind: request.kind,
  model: request.model,
  state: request.state,
  since: isoTime(nowMs - request.ageMs),
  seconds: request.ageMs / MS_PER_SECOND,
  tokens: request.tokens,
  server: request.backend || null,
  worker: request.workerId,
});
