/** The run of a request with files, from their first byte to its end. */
import type { JobRequest, UploadEnd } from "@gateway/shared/bus/job";
import { scopeOf } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import type {
  AnswerSink,
  RunOutcome,
  StartedRun,
} from "../../dispatch/outcome.ts";
import type { Upload } from "../../dispatch/request_body.ts";
import { keyRevoked } from "../../dispatch/run_errors.ts";
import type { Form } from "../../http/read_form.ts";
import { abandon, sendError } from "../../http/responses.ts";
import type { AdmissionAsk, RunLease } from "../../limits/admission.ts";
import type { Estimate } from "../../limits/cost.ts";
import type { Charge } from "../../limits/rate.ts";
import type { Answer } from "../answer.ts";
import {
  type AuthenticatedCall,
  type CallEnd,
  hasLeft,
  RUNNING,
} from "../call.ts";
import type { FileMeter, UploadEndpoint } from "../endpoint.ts";
import {
  recordRun,
  type RunDependencies,
  type RunFacts,
  startTracedRun,
} from "../run_record.ts";
import { admit, type AdmitDependencies } from "../admit.ts";
import { endUserNames } from "../end_user.ts";
import { left, type RunRequestDependencies } from "../run_request.ts";

/**
 * The stages of an upload:
 * - `reading`: the first byte of a file has arrived; nothing is reserved.
 * - `admitted`: the request has its place among those of its key, with the least that
 *   it may cost. No worker knows of it, so however slowly it arrives, it holds nothing
 *   that others need.
 * - `running`: a whole piece has arrived, or all of the form; the files go to a worker.
 * - `checked`: the form has ended; the request is checked, and admitted with its cost.
 * - `ended`: nothing follows.
 */
type Stage = "reading" | "admitted" | "running" | "checked" | "ended";

/** What an upload is, as far as it is known at the first byte of its files. */
export interface UploadStart<Request extends JobRequest> {
  readonly endpoint: UploadEndpoint<Request>;
  readonly form: Form;
  /** The model whose workers get the files, see `RunJob`. */
  readonly model: string;
  /** Measures its file; null: nobody needs that. */
  readonly meter: FileMeter | null;
}

/** What an upload uses of its edge. */
export interface UploadRunDependencies
  extends
    RunDependencies,
    Pick<AdmitDependencies, "admission">,
    Pick<RunRequestDependencies, "catalog" | "streamHeadMs"> {}

/** A request with files: what the dispatcher sends, and who gets the answer. */
export class UploadRun<Request extends JobRequest>
  implements Upload, AnswerSink {
  readonly #call: AuthenticatedCall;
  readonly #endpoint: UploadEndpoint<Request>;
  readonly #form: Form;
  readonly #meter: FileMeter | null;
  readonly #deps: UploadRunDependencies;
  /** How the call ended, or the error that refuses it. */
  readonly #end = Promise.withResolvers<CallEnd>();
  #stage: Stage = "reading";
  /** What is counted and logged; the model may be a guess until the form has ended. */
  #facts: RunFacts;
  /** What the admission was asked for. */
  #ask: AdmissionAsk;
  /** Null before the admission, and while it is corrected. */
  #lease: RunLease | null = null;
  #run: StartedRun | null = null;
  /** Null until the request is known. */
  #answer: Answer | null = null;
  #request: Request | null = null;
  #admittedAtMs = 0;

  constructor(
    call: AuthenticatedCall,
    { endpoint, form, model, meter }: UploadStart<Request>,
    deps: UploadRunDependencies,
  ) {
    this.#call = call;
    this.#endpoint = endpoint;
    this.#form = form;
    this.#meter = meter;
    this.#deps = deps;
    const { kind, least } = endpoint;
    this.#facts = { kind, model, stream: false };
    this.#ask = {
      scope: scopeOf(kind),
      model: form.fields.model === undefined ? null : model,
      endpoint: call.endpoint,
      estimate: least,
      // A form may name its end user only after its files.
      endUser: (source) =>
        endUserNames({ headers: call.exchange.headers, body: form.fields })(
          source,
        ),
    };
  }

  /** Part of the answer was sent. */
  get hasStarted(): boolean {
    return this.#answer?.hasStarted ?? false;
  }

  /**
   * Admits the request, then runs it. Resolves when the form has ended and the request
   * was handed over, or the run has ended before. Rejects with the `ApiError` of a
   * refusal.
   */
  async handle(): Promise<CallEnd> {
    this.#admittedAtMs = this.#deps.now();
    this.#lease = await admit(this.#call, this.#ask, this.#deps);
    if (this.#lease === null) return left(this.#call);
    this.#stage = "admitted";
    try {
      const progress = await this.#form.filled;
      if (progress === "end") await this.#confirm();
      if (progress === "left" || hasLeft(this.#call)) {
        this.#giveUp("left");
        return left(this.#call);
      }
      this.#start();
      return await Promise.race([this.#end.promise, this.#form.failed]);
    } catch (error) {
      const isSlow = error instanceof ApiError &&
        error.code === "request_timeout";
      this.#giveUp(isSlow ? "left" : "refused");
      throw error;
    }
  }

  /** The next piece of the files, for the worker. */
  next(): Promise<Uint8Array | null> {
    return this.#form.next();
  }

  /** How long the upload has waited for its next piece, in ms. */
  lateMs(): number {
    return this.#form.lateMs();
  }

  /** The request, for the worker. Null if it may not run: the client gets the error. */
  async end(): Promise<UploadEnd | null> {
    try {
      await this.#confirm();
    } catch (error) {
      this.#end.reject(error);
    }
    // Without a lease nobody would pay for it.
    if (this.#stage !== "checked" || this.#request === null) return null;
    this.#end.resolve(RUNNING);
    const end = { request: this.#request, files: this.#form.files };
    this.#request = null;
    return end;
  }

  /** The next bytes of the answer. */
  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.#answer !== null) this.#answer.onPayload(payload, sequence);
    else this.#run?.cancel("violation", tooEarly());
  }

  /** The answer is complete. */
  onEnd(): void {
    if (this.#answer !== null) this.#answer.onEnd();
    else this.onError(tooEarly());
  }

  /** The run has failed. */
  onError(error: ApiError): void {
    if (this.#answer !== null) this.#answer.onError(error);
    else if (this.#stage !== "ended") {
      sendError(this.#call.exchange.response, error);
    }
  }

  /** The client has left, or the call was refused. */
  onAbandoned(): void {
    if (this.#answer !== null) this.#answer.onAbandoned();
    else if (this.#stage !== "ended") abandon(this.#call.exchange.response);
  }

  /** Another worker starts anew. */
  onRestart(): void {
    this.#answer?.onRestart();
  }

  /** Advances time. */
  onTick(nowMs: number): void {
    this.#answer?.onTick(nowMs);
  }

  /** Sends the files to a worker. */
  #start(): void {
    const { dispatcher } = this.#deps;
    const { keyId } = this.#call.principal;
    if (dispatcher.isStoppedSince(keyId, this.#admittedAtMs)) {
      throw keyRevoked();
    }
    this.#form.mayRun();
    if (this.#stage === "admitted") this.#stage = "running";
    const { kind, model } = this.#facts;
    const run = startTracedRun(this.#call, {
      kind,
      model,
      body: this,
      queue: this.#lease?.queue,
      sink: this,
      onEnded: (outcome) => this.#onEnded(outcome),
    }, this.#deps);
    this.#run = run;
    this.#answer?.attach(run);
  }

  /**
   * Checks the request, once the form has ended, and corrects its admission. Throws the
   * `ApiError` of a refusal.
   */
  async #confirm(): Promise<void> {
    if (this.#stage === "checked") return;
    const { catalog, now, streamHeadMs } = this.#deps;
    const { kind } = this.#endpoint;
    const request = this.#endpoint.parse(this.#form.fields, catalog);
    this.#form.requireFiles();
    const { model, stream } = request;
    const estimate = {
      ...this.#endpoint.estimate(request, catalog),
      ...this.#heldUnits(model),
    };
    const lease = await this.#correct({
      scope: scopeOf(kind),
      model,
      endpoint: this.#call.endpoint,
      estimate,
      endUser: this.#ask.endUser,
    });
    if (lease === null) return;
    const { response: out } = this.#call.exchange;
    const createAnswer = this.#endpoint.answer(request);
    this.#answer = createAnswer({ out, lease, now, streamHeadMs });
    if (this.#run !== null) this.#answer.attach(this.#run);
    this.#facts = { kind, model, stream };
    this.#request = request;
    this.#stage = "checked";
  }

  /**
   * What its file may cost, where a budget is to hold that. Without one, the request is
   * not admitted again for it.
   */
  #heldUnits(model: string): Pick<Estimate, "heldUnits"> {
    const hasPrice =
      this.#deps.catalog.get(model)?.prices?.second !== undefined;
    const hasBudget = this.#lease?.reservation.isHeld === true;
    return this.#meter !== null && hasPrice && hasBudget
      ? { heldUnits: this.#meter.units() }
      : {};
  }

  /**
   * Replaces the admission by one of the whole request, unless that asks for the same.
   * What was reserved is returned by the call before: Redis makes both in this order.
   * Null if the client has left or the run has ended meanwhile.
   */
  async #correct(ask: AdmissionAsk): Promise<RunLease | null> {
    if (isSame(ask, this.#ask)) return this.#lease;
    this.#lease?.undo();
    this.#lease = null;
    this.#ask = ask;
    const lease = await admit(this.#call, ask, this.#deps);
    if (this.#stage === "ended") lease?.undo();
    else this.#lease = lease;
    return this.#lease;
  }

  /** Ends an upload whose call is answered by its handler. */
  #giveUp(why: "left" | "refused"): void {
    if (this.#stage === "ended") return;
    this.#stage = "ended";
    if (why === "left") this.#lease?.settle(null);
    else this.#lease?.undo();
    this.#lease = null;
    this.#run?.cancel("other");
  }

  #onEnded(outcome: RunOutcome): void {
    if (this.#stage === "ended") return; // Its call was refused.
    const wasChecked = this.#stage === "checked";
    const { cancelReason } = outcome;
    // A client that leaves in the middle has held a slot, so it pays for the request.
    const isLeft = cancelReason === "client_gone" ||
      cancelReason === "slow_client";
    this.#stage = "ended";
    let charge: Charge | null = null;
    if (wasChecked) charge = this.#lease?.settle(outcome) ?? null;
    else if (isLeft) this.#lease?.settle(null);
    else this.#lease?.undo();
    this.#lease = null;
    const isCharged = wasChecked || isLeft;
    const end = { outcome, isCharged, charge, deps: this.#deps };
    recordRun(this.#call, this.#facts, end);
    this.#end.resolve(RUNNING);
  }
}

function tooEarly(): ApiError {
  const message = "The worker answered before the upload had ended.";
  return new ApiError("upstream_invalid", message);
}

function isSame(one: AdmissionAsk, other: AdmissionAsk): boolean {
  const { estimate: a } = one;
  const { estimate: b } = other;
  return one.model === other.model && a.totalTokens === b.totalTokens &&
    a.units?.unit === b.units?.unit && a.units?.count === b.units?.count &&
    a.heldUnits === b.heldUnits;
}
