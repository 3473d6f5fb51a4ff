/**
 * Runs requests whose answers are kept: once, whoever of their clients asks, and on
 * until they have ended.
 */
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
  hasLeft,
  RUNNING,
} from "../requests/call.ts";
import { EventNumbers } from "../requests/event_numbers.ts";
import type {
  AnswerKeeper,
  KeepableRequest,
  LeasedRequest,
} from "../requests/keeper.ts";
import {
  recordRun,
  type RunDependencies,
  startTracedRun,
} from "../requests/run_record.ts";
import { KeptSink } from "./kept_sink.ts";
import { keptHeaders } from "./kept_answer.ts";
import { type AnswerOpening, keepMsOf, openingOf } from "./opening.ts";
import type { AnswerName, KeptRecords } from "./records.ts";
import type { Replays } from "./replays.ts";
import { closingOf } from "./settling.ts";

/** What {@link Keeper} needs. */
export interface KeeperOptions
  extends Omit<AdmitDependencies, "dispatcher" | "now">, RunDependencies {
  readonly records: Pick<
    KeptRecords,
    "open" | "reserve" | "close" | "remove"
  >;
  readonly replays: Pick<Replays, "send" | "isLost">;
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
  /** Whether the log can be used now, or has been a moment ago. */
  readonly isLogReady: () => boolean;
  /** Whether it can be used now: a client that has not asked does not wait for it. */
  readonly isLogThere: () => boolean;
}

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
    const { idempotencyKey = null } = call.keep ?? {};
    if (idempotencyKey !== null) {
      return await this.#runOnce(call, request, idempotencyKey);
    }
    const lease = await this.#admit(call, request);
    if (lease === null) return this.#leave(call, request);
    const end = await this.#keep(call, { ...request, lease });
    if (end !== null) return end;
    lease.undo();
    throw accountFull();
  }

  async keep(
    call: AuthenticatedCall,
    request: LeasedRequest,
  ): Promise<CallEnd | null> {
    if (!this.#options.isLogThere()) return null;
    return await this.#keep(call, request);
  }

  /**
   * Opens the record of an admitted request, and starts it. Null, with its lease, if
   * its account keeps as much as it may.
   */
  async #keep(
    call: AuthenticatedCall,
    request: LeasedRequest,
  ): Promise<CallEnd | null> {
    const { records, metrics } = this.#options;
    const { lease, estimate } = request;
    const opening = openingOf(call, request, {
      ...this.#options,
      keepMs: keepMsOf(call.keep, lease),
    });
    const terms = { reservation: lease.reservation, estimate };
    try {
      const opened = await records.open({ ...opening, terms });
      if (opened.type !== "new") {
        metrics.keeping("full");
        return null;
      }
      metrics.keeping("new");
      this.#requireUnstopped(call);
    } catch (error) {
      lease.undo();
      await this.#forget(opening);
      throw error;
    }
    return await this.#start(call, request, opening);
  }

  /** Runs a request, unless its key has sent the same with this idempotency key. */
  async #runOnce(
    call: AuthenticatedCall,
    request: KeepableRequest,
    idempotencyKey: string,
  ): Promise<CallEnd> {
    const { records, replays, metrics } = this.#options;
    const opening = openingOf(call, request, {
      ...this.#options,
      keepMs: keepMsOf(call.keep),
    });
    const opened = await records.open({ ...opening, idempotencyKey });
    switch (opened.type) {
      case "new":
        metrics.keeping("new");
        return await this.#startFirst(call, request, opening);
      case "repeat": {
        const { requestId } = opened;
        const name = { ownerId: call.principal.ownerId, requestId };
        if (await replays.isLost(name)) {
          await this.#dropLost(name);
          return await this.#runOnce(call, request, idempotencyKey);
        }
        metrics.keeping("replayed");
        const terms = { after: 0, isReplayed: true };
        const end = await replays.send(call, name, terms);
        request.body.release();
        return end;
      }
      case "mismatch":
        metrics.keeping("mismatch");
        throw otherBody();
      case "full":
        metrics.keeping("full");
        throw accountFull();
    }
  }

  /** Admits and starts a request whose record is open; if it is refused, forgets it. */
  async #startFirst(
    call: AuthenticatedCall,
    request: KeepableRequest,
    opening: AnswerOpening,
  ): Promise<CallEnd> {
    const { records } = this.#options;
    let lease: RunLease | null = null;
    let { facts } = opening;
    try {
      lease = await this.#admit(call, request);
      if (lease !== null) {
        facts = { ...facts, keepMs: keepMsOf(call.keep, lease) };
        const { reservation } = lease;
        const terms = { reservation, estimate: request.estimate };
        await records.reserve(opening, terms, facts);
        this.#requireUnstopped(call);
      }
    } catch (error) {
      lease?.undo();
      await this.#forget(opening);
      throw error;
    }
    if (lease === null) {
      await this.#forget(opening);
      return this.#leave(call, request);
    }
    return await this.#start(call, { ...request, lease }, {
      ...opening,
      facts,
    });
  }

  #admit(
    call: AuthenticatedCall,
    { kind, model, estimate, endUser }: KeepableRequest,
  ): Promise<RunLease | null> {
    const { endpoint } = call;
    const ask = { scope: scopeOf(kind), model, endpoint, estimate, endUser };
    return admit(call, ask, this.#options);
  }

  /** Throws if the key was stopped while its request was on the way to its run. */
  #requireUnstopped({ principal, startedAtMs }: AuthenticatedCall): void {
    const { dispatcher } = this.#options;
    if (dispatcher.isStoppedSince(principal.keyId, startedAtMs)) {
      throw keyRevoked();
    }
  }

  /** Starts a request. Forgets it, if its client has left. */
  async #start(
    call: AuthenticatedCall,
    request: LeasedRequest,
    opening: AnswerOpening,
  ): Promise<CallEnd> {
    if (hasLeft(call)) {
      request.lease.settle(null);
      await this.#forget(opening);
      return this.#leave(call, request);
    }
    const { requestId, ownerId } = opening;
    this.#running.set(requestId, { ownerId, requestId });
    this.#launch(call, request, opening);
    return RUNNING;
  }

  /** The client has disconnected. */
  #leave({ exchange }: AuthenticatedCall, { body }: KeepableRequest): CallEnd {
    body.release();
    abandon(exchange.response);
    return ANSWERED;
  }

  #launch(
    call: AuthenticatedCall,
    { createAnswer, estimate, session, body, lease, ...facts }: LeasedRequest,
    { key: keepKey, facts: { keepMs } }: AnswerOpening,
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
    const { onTokens, queue } = lease;
    const run = startTracedRun(call, {
      kind,
      model,
      session,
      tokens,
      body,
      queue,
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
      sink: Pick<KeptSink, "hasStarted">;
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
    records.close(name, closing).catch((error) =>
      // Whoever looks after the answer next ends its record.
      log.warn("kept_answer_not_closed", {
        requestId: publicRequestId(requestId),
        error,
      })
    );
    return true;
  }

  /** Forgets an answer that nobody can read, so that its request may run again. */
  async #dropLost(name: AnswerName): Promise<void> {
    const { records, log } = this.#options;
    // If two edges find this out, one removes it; both go on with what runs then.
    if (!await records.remove(name)) return;
    log.warn("kept_answer_lost", {
      requestId: publicRequestId(name.requestId),
    });
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
