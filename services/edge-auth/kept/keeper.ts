/**
 * Runs requests whose answers are kept: once, whoever of their clients asks, and on
 * until they have ended.
 */
import { KEPT_KEY_BYTES } from "@gateway/shared/kept/entry";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { scopeOf } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import type { WallNow } from "@gateway/shared/process/clock";
import { publicRequestId, type RandomBytes } from "@gateway/shared/process/ids";
import type { RunOutcome } from "../dispatch/outcome.ts";
import { keyRevoked } from "../dispatch/run_errors.ts";
import { abandon } from "../http/responses.ts";
import type { RunLease } from "../limits/admission.ts";
import { admit, type AdmitDependencies } from "../requests/admit.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type CallEnd,
  RUNNING,
} from "../requests/call.ts";
import { EventNumbers } from "../requests/event_numbers.ts";
import type { AnswerKeeper, KeepableRequest } from "../requests/keeper.ts";
import {
  recordRun,
  type RunDependencies,
  startTracedRun,
} from "../requests/run_record.ts";
import { KeptSink } from "./kept_sink.ts";
import { endpointOf, keptHeaders } from "./kept_answer.ts";
import type { AnswerName, KeptRecords } from "./records.ts";
import type { Replays } from "./replays.ts";
import { closingOf } from "./settling.ts";

/** What {@link Keeper} needs. */
export interface KeeperOptions
  extends Omit<AdmitDependencies, "dispatcher" | "now">, RunDependencies {
  readonly records: KeptRecords;
  readonly replays: Pick<Replays, "send">;
  readonly wallNow: WallNow;
  readonly randomBytes: RandomBytes;
  /** The longest that a run may take. */
  readonly requestTimeoutMs: number;
  readonly streamHeadMs: number;
  readonly metrics: RunDependencies["metrics"] & {
    keeping(result: "new" | "replayed" | "mismatch" | "full"): void;
  };
  /** Stops renewing a lease, which whoever finds its answer settles. */
  readonly releaseLease: (id: string) => void;
  /** Whether the log can be used now. */
  readonly isLogReady: () => boolean;
}

const MS_PER_SECOND = 1_000;
/** A record outlives the longest run by this, so that it does not end before. */
const SLACK_MS = 60_000;

/** The requests of this edge whose answers are kept. */
export class Keeper implements AnswerKeeper {
  readonly #options: KeeperOptions;
  /** The answers that run here, by request id. */
  readonly #running = new Map<string, AnswerName>();

  constructor(options: KeeperOptions) {
    this.#options = options;
  }

  /** The answers that run here. */
  get running(): readonly AnswerName[] {
    return [...this.#running.values()];
  }

  requireLog(): void {
    if (this.#options.isLogReady()) return;
    throw new ApiError(
      "keep_unavailable",
      "This gateway keeps no answers at the moment, because its log cannot be " +
        "used: send the request without the headers 'Idempotency-Key' and " +
        "'X-Gateway-Keep', or later.",
    );
  }

  async run(
    call: AuthenticatedCall,
    request: KeepableRequest,
  ): Promise<CallEnd> {
    const { records, replays } = this.#options;
    const key = this.#options.randomBytes(KEPT_KEY_BYTES);
    const opening = this.#openingOf(call, request, key);
    const opened = await records.open(opening);
    const { metrics } = this.#options;
    switch (opened.type) {
      case "new":
        metrics.keeping("new");
        return await this.#start(call, request, opening);
      case "known": {
        metrics.keeping("replayed");
        const { requestId } = opened;
        const end = await replays.send(call, { requestId }, {
          after: 0,
          isReplayed: true,
        });
        request.body.release();
        return end;
      }
      case "other":
        metrics.keeping("mismatch");
        throw otherBody();
      case "full":
        metrics.keeping("full");
        throw accountFull();
    }
  }

  #openingOf(
    { requestId, principal, keep, endsByMs, exchange }: AuthenticatedCall,
    { kind, model, stream, bodyDigest }: KeepableRequest,
    key: Uint8Array,
  ) {
    const { wallNow, now, requestTimeoutMs } = this.#options;
    const { idempotencyKey = null, seconds = KEPT_LIMITS.secondsDefault } =
      keep ?? {};
    const runMs = Math.min(requestTimeoutMs, endsByMs - now());
    const keepMs = seconds * MS_PER_SECOND;
    const createdAtMs = wallNow();
    return {
      requestId,
      principal,
      key,
      idempotencyKey,
      bodyDigest,
      lastsMs: Math.ceil(runMs + keepMs + SLACK_MS),
      facts: {
        keyId: principal.keyId,
        model,
        kind,
        stream,
        endpoint: endpointOf(exchange.path),
        createdAtMs,
        keepMs,
        endsByMs: createdAtMs + runMs,
      },
    };
  }

  /** Admits and starts a request. Forgets it, if it is refused or its client has left. */
  async #start(
    call: AuthenticatedCall,
    request: KeepableRequest,
    { key, facts: { keepMs } }: { key: Uint8Array; facts: { keepMs: number } },
  ): Promise<CallEnd> {
    const { records } = this.#options;
    const { requestId, principal: { ownerId } } = call;
    const name = { ownerId, requestId };
    const { kind, model, estimate, endUser } = request;
    const { endpoint } = call;
    const ask = { scope: scopeOf(kind), model, endpoint, estimate, endUser };
    let lease: RunLease | null = null;
    try {
      lease = await admit(call, ask, this.#options);
      if (lease !== null) {
        const { reservation } = lease;
        await records.reserve(name, { reservation, estimate });
        const { dispatcher } = this.#options;
        const { keyId } = call.principal;
        if (dispatcher.isStoppedSince(keyId, call.startedAtMs)) {
          throw keyRevoked();
        }
      }
    } catch (error) {
      lease?.undo();
      await this.#forget(name);
      throw error;
    }
    if (lease === null || call.exchange.socket.destroyed) {
      lease?.settle(null);
      await this.#forget(name);
      request.body.release();
      abandon(call.exchange.response);
      return ANSWERED;
    }
    this.#running.set(requestId, name);
    this.#launch(call, request, { key, lease, keepMs });
    return RUNNING;
  }

  #launch(
    call: AuthenticatedCall,
    { createAnswer, estimate, session, body, ...facts }: KeepableRequest,
    { key: keepKey, lease, keepMs }: {
      key: Uint8Array;
      lease: RunLease;
      keepMs: number;
    },
  ): void {
    const { now, streamHeadMs } = this.#options;
    const { response: out } = call.exchange;
    const headers = {
      ...lease.headers,
      ...keptHeaders(call.requestId, keepMs),
    };
    const answer = createAnswer({
      out,
      lease: { ...lease, headers },
      now,
      streamHeadMs,
      numbers: new EventNumbers(),
    });
    const sink = new KeptSink(answer);
    const { kind, model, stream } = facts;
    const tokens = estimate.units === null ? estimate.totalTokens : undefined;
    const { onTokens } = lease;
    const run = startTracedRun(call, {
      kind,
      model,
      session,
      tokens,
      body,
      onTokens,
      keepKey,
      sink,
      onLeft: () => sink.detach(),
      onEnded: (outcome) => {
        const isOurs = this.#onEnded(call, outcome, { lease, keepMs, sink });
        const charge = isOurs
          ? lease.settle(outcome, { isShared: true })
          : null;
        const run = { outcome, isCharged: isOurs, charge, deps: this.#options };
        recordRun(call, { kind, model, stream }, run);
      },
    }, this.#options);
    sink.attach(run);
  }

  /** Ends the record of an answer; false if its worker finishes it without this edge. */
  #onEnded(
    { requestId, principal: { ownerId } }: AuthenticatedCall,
    outcome: RunOutcome,
    { lease, keepMs, sink }: {
      lease: RunLease;
      keepMs: number;
      sink: KeptSink;
    },
  ): boolean {
    const { records, releaseLease, log } = this.#options;
    const name = { ownerId, requestId };
    this.#running.delete(requestId);
    if (goesOn(outcome)) {
      releaseLease(lease.reservation.id);
      return false;
    }
    const { hasStarted: hasData } = sink;
    const { answerBytes: bytes } = outcome;
    const closing = closingOf(outcome, { keepMs, bytes, hasData });
    records.close(name, closing)
      .then(() => records.dueIn(closing.keepMs, [name]))
      .catch((error) =>
        // Whoever looks after the answer next ends its record.
        log.warn("kept_answer_not_closed", {
          requestId: publicRequestId(requestId),
          error,
        })
      );
    return true;
  }

  async #forget(name: AnswerName): Promise<void> {
    const { records, log } = this.#options;
    await records.remove(name).catch((error) =>
      // It expires.
      log.warn("kept_answer_not_closed", {
        requestId: publicRequestId(name.requestId),
        error,
      })
    );
  }
}

/** Whether a worker runs a request on that this edge has let go. */
function goesOn({ dispatchMs, cancelReason, error }: RunOutcome): boolean {
  return dispatchMs !== null &&
    (cancelReason === "shutdown" || error?.code === "bus_unavailable");
}

function otherBody(): ApiError {
  return new ApiError(
    "idempotency_mismatch",
    "This 'Idempotency-Key' was sent before with another request. Use a new " +
      "one for each request.",
  );
}

function accountFull(): ApiError {
  return new ApiError(
    "keep_full",
    "The kept answers of your account take as much room as they may. Delete " +
      "some, wait until they expire, or send the request without the headers " +
      "'Idempotency-Key' and 'X-Gateway-Keep'.",
  );
}
