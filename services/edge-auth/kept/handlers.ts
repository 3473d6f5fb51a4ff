/** `GET` and `DELETE /v1/answers/{request id}`. */
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { subjects } from "@gateway/shared/bus/subjects";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { KeptLogReader } from "@gateway/shared/kept/log";
import { encodeStopOrder } from "@gateway/shared/kept/stop_order";
import { ApiError } from "@gateway/shared/openai/error";
import type {
  AnswerDeleted,
  AnswerState,
} from "@gateway/shared/openai/kept_answer";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { sendJson } from "../http/responses.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type CallEnd,
} from "../requests/call.ts";
import { readAfter } from "../requests/keep_headers.ts";
import { errorOfEnd, unknownAnswer } from "./reading.ts";
import type { KeptRecord, KeptRecords } from "./records.ts";
import type { Replays } from "./replays.ts";

/** What reading and deleting answers needs. */
export interface AnswerDependencies {
  readonly replays: Pick<Replays, "find" | "send">;
  readonly records: Pick<KeptRecords, "remove" | "setDueIn">;
  readonly keptLog: Pick<KeptLogReader, "remove">;
  readonly bus: Pick<BusLink, "publish">;
  readonly log: Pick<Log, "warn">;
}

/** What the routes of answers need; null: the operator has switched them off. */
export interface AnswersDependencies {
  answers?: AnswerDependencies | null;
}

const ID = /^(?:req_)?([0-9a-f]{32})$/;
const JSON_TYPE = "application/json";
const MS_PER_SECOND = 1_000;

/** Sends an answer, from an event on, or what is known of it. */
export async function sendAnswer(
  call: AuthenticatedCall,
  deps: AnswersDependencies,
): Promise<CallEnd> {
  const { replays } = partsOf(deps);
  const { exchange, principal } = call;
  const after = readAfter(exchange);
  const requestId = idOf(call);
  const [accepted = ""] = exchange.headers.accept?.split(";") ?? [];
  if (accepted.trim().toLowerCase() !== JSON_TYPE) {
    return await replays.send(call, { requestId }, {
      after,
      isReplayed: false,
    });
  }
  const record = await replays.find(principal, requestId);
  sendJson(exchange.response, stateOf(record));
  return ANSWERED;
}

/** Stops the run of an answer, and removes what was kept of it. */
export async function deleteAnswer(
  call: AuthenticatedCall,
  deps: AnswersDependencies,
): Promise<CallEnd> {
  const { replays, records, keptLog, bus, log } = partsOf(deps);
  const requestId = idOf(call);
  const record = await replays.find(call.principal, requestId);
  // What a worker appends until it hears of this is removed when it is due.
  await records.setDueIn(KEPT_LIMITS.orphanMs, [record]);
  if (!await records.remove(record)) throw unknownAnswer();
  const id = publicRequestId(requestId);
  try {
    const { ownerId: account } = record;
    const order = encodeStopOrder({ requestId, account });
    bus.publish(subjects.stopKept, order);
    await keptLog.remove(requestId);
  } catch (error) {
    // Nobody can read it any more: its key is gone. The rest is done when it is due.
    log.warn("kept_answer_not_removed", { requestId: id, error });
  }
  const { response } = call.exchange;
  const deleted: AnswerDeleted = {
    id,
    object: "answer.deleted",
    deleted: true,
  };
  sendJson(response, deleted);
  return ANSWERED;
}

function partsOf({ answers = null }: AnswersDependencies): AnswerDependencies {
  if (answers !== null) return answers;
  throw new ApiError(
    "keep_unavailable",
    "This gateway keeps no answers: its operator has switched that off.",
  );
}

function idOf({ id }: AuthenticatedCall): string {
  const [, requestId] = ID.exec(id) ?? [];
  if (requestId === undefined) throw unknownAnswer();
  return requestId;
}

/** What a client hears of an answer beside its content. */
function stateOf(
  { requestId, state, facts, end }: KeptRecord,
): AnswerState {
  return {
    id: publicRequestId(requestId),
    object: "answer",
    state,
    model: facts.model,
    endpoint: facts.endpoint,
    stream: facts.stream,
    created: Math.floor(facts.createdAtMs / MS_PER_SECOND),
    keep_seconds: Math.round(facts.keepMs / MS_PER_SECOND),
    usage: end?.usage ?? null,
    error: end?.error ? { ...errorOfEnd(end).toBody().error } : null,
  };
}
