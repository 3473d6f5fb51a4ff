/**
 * What all endpoints that run a model have in common: a request is read, checked,
 * admitted and run, and its cost is settled, however it ended.
 */
import { freeBytes } from "@gateway/shared/bus/free_bytes";
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Catalog } from "@gateway/shared/models/catalog";
import { scopeOf } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import { decodeUtf8, parseJsonBody } from "@gateway/shared/openai/json_body";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { WholeBody } from "../dispatch/request_body.ts";
import type { RunOutcome } from "../dispatch/outcome.ts";
import { keyRevoked } from "../dispatch/run_errors.ts";
import {
  type BodyBounds,
  parseWorkMs,
  readBody,
  type RefusedBodies,
} from "../http/read_body.ts";
import { abandon } from "../http/responses.ts";
import { BODY_TURNS } from "../http/turns.ts";
import type { Admission, RunLease } from "../limits/admission.ts";
import type { EndUserNames } from "../limits/callers/end_users.ts";
import type { Estimate } from "../limits/cost.ts";
import { admit } from "./admit.ts";
import type { AnswerOptions } from "./answer.ts";
import { endUserNames } from "./end_user.ts";
import { conversationOf } from "./affinity.ts";
import { asksToKeep } from "./keep_headers.ts";
import { requireRights } from "./rights.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type CallEnd,
  hasLeft,
  refused,
  RUNNING,
} from "./call.ts";
import type { AnswerMaker, Endpoint } from "./endpoint.ts";
import {
  type AnswerKeeper,
  keepByDefault,
  type KeeperDependencies,
  keeperFor,
  refuseToKeep,
  requestDigest,
  wantsToKeep,
} from "./keeper.ts";
import {
  recordRun,
  type RunDependencies,
  type RunFacts,
  startTracedRun,
} from "./run_record.ts";

/** What handling the requests of an endpoint needs. */
export interface RunRequestDependencies
  extends
    BodyBounds,
    RunDependencies,
    KeeperDependencies,
    Pick<AnswerOptions, "streamHeadMs"> {
  catalog: Catalog;
  admission: Admission;
  refusedBodies: RefusedBodies;
  /** Bounds requests that cost nothing. */
  countLimit: { take(keyId: string): () => void };
}

/** A request that was checked. The body is all that is left of its content. */
interface CheckedRequest extends RunFacts {
  readonly type: "checked";
  readonly estimate: Estimate;
  readonly createAnswer: AnswerMaker;
  readonly session: string | undefined;
  readonly endUser: EndUserNames;
  readonly body: WholeBody;
  /** How long parsing and checking took. */
  readonly parseMs: number;
  /** Whether it costs nothing. */
  readonly isFree: boolean;
  /** Whether its answer is kept where the key wants that of all of them. */
  readonly isKept: boolean;
  /** Who keeps its answer; null: nobody, unless its key wants it. */
  readonly keeper: AnswerKeeper | null;
  /** The digest of path and body; empty if nobody keeps its answer. */
  readonly bodyDigest: string;
}

/** A request that may run. */
export interface AdmittedRequest extends RunFacts {
  /** The conversation that it belongs to, if its model has to know. */
  readonly session?: string | undefined;
  /** Tokens that it asks for, as estimated; absent: it is not counted in tokens. */
  readonly tokens?: number | undefined;
  readonly body: WholeBody;
  readonly createAnswer: AnswerMaker;
  /** Null if it takes no place among the requests of its key. */
  readonly lease: RunLease | null;
  /** Returns what a request holds that costs nothing; null: its lease is settled. */
  readonly release: (() => void) | null;
}

/**
 * Handles a request with a JSON body. Resolves when its run has started, or it was
 * refused, or its client has left.
 */
export async function runRequest<Request extends JobRequest>(
  call: AuthenticatedCall,
  endpoint: Endpoint<Request>,
  deps: RunRequestDependencies,
): Promise<CallEnd> {
  const { admission } = deps;
  const { principal } = call;
  let { model = null }: { model?: string | null } = endpoint;
  try {
    // Limits of tokens, for which it may have been refused, do not concern all.
    if (!endpoint.isUnmetered) {
      await admission.checkRefused(principal, endpoint.kind);
    }
    const read = await readRequest(call, endpoint, deps);
    if (read.type === "checked") return await runChecked(call, read, deps);
    if (read.type !== "refused") return read;
    model = read.model;
    // What a key may not use at all gets the error for that instead.
    if (read.error instanceof ApiError) {
      const kinds = endpoint.kindsFor?.(model, deps.catalog) ?? [endpoint.kind];
      await requireRights(principal, { kinds, model }, deps);
    }
    return read;
  } catch (error) {
    return refused(error, model);
  }
}

/** Reads, checks and encodes a request. Of its content only the bytes are kept. */
async function readRequest<Request extends JobRequest>(
  call: AuthenticatedCall,
  endpoint: Endpoint<Request>,
  deps: RunRequestDependencies,
): Promise<CheckedRequest | CallEnd> {
  const { now, refusedBodies, catalog } = deps;
  const { keyId } = call.principal;
  const { isFree = false, isKept = false } = endpoint;
  const keeper = keeperOf(call, endpoint, deps);
  let model: unknown = endpoint.model;
  const read = await readBody(call.exchange, keyId, deps).catch(
    (error: unknown) => refused(error, model),
  );
  if (read === null) return left(call);
  if ("type" in read) return read;
  const { bytes, share } = read;
  if (bytes.length >= BODY_TURNS.bodyBytesMin) {
    await call.exchange.turns.next(bytes.length);
  }
  // Parsing uses the bytes up.
  const { length } = bytes;
  const startedAtMs = now();
  try {
    // Other bodies of the key may have been refused in the meantime.
    refusedBodies.require(keyId);
    const bodyDigest = keeper === null
      ? ""
      : requestDigest(call.exchange.path, bytes);
    const body = endpoint.decode === undefined
      ? readJson(bytes)
      : endpoint.decode(bytes);
    if (isJsonObject(body)) model ??= body.model;
    const request = endpoint.parse(body, catalog);
    return {
      type: "checked",
      kind: endpoint.kindOf?.(request, catalog) ?? endpoint.kind,
      model: request.model,
      stream: request.stream,
      estimate: endpoint.estimate(request, catalog),
      createAnswer: endpoint.answer(request),
      session: keepsSessions(catalog, request.model)
        ? sessionOf(call, endpoint.conversation?.(body))
        : undefined,
      endUser: endUserNames({
        headers: call.exchange.headers,
        body: endpoint.members === undefined ? body : endpoint.members(body),
      }),
      body: WholeBody.encode(request, share),
      parseMs: parseWorkMs(now() - startedAtMs, length),
      isFree,
      isKept,
      keeper,
      bodyDigest,
    };
  } catch (error) {
    share.release();
    refusedBodies.charge(keyId, parseWorkMs(now() - startedAtMs, length));
    return refused(error, model);
  }
}

/** Who keeps the answer of a call that asks for it; null: nobody. */
function keeperOf(
  call: AuthenticatedCall,
  { isFree = false, isKept = false }: Pick<
    Endpoint<never>,
    "isFree" | "isKept"
  >,
  deps: KeeperDependencies,
): AnswerKeeper | null {
  // There is nothing to be lost of a count.
  if (!asksToKeep(call.keep) || isFree) return null;
  if (isKept) return keeperFor(call, deps);
  refuseToKeep(call, deps);
  return null;
}

/** The conversation of a request; undefined for one that belongs to none. */
function sessionOf(
  { exchange: { headers }, principal: { ownerId: account } }: AuthenticatedCall,
  body: unknown,
): string | undefined {
  if (body === undefined) return undefined;
  return conversationOf({ body, headers, account });
}

/** Parses a body, whose bytes are used up. Throws the `ApiError` for its fault. */
function readJson(bytes: Uint8Array): unknown {
  const text = decodeUtf8(bytes);
  freeBytes(bytes);
  return parseJsonBody(text);
}

/** Admits and starts a request. */
async function runChecked(
  call: AuthenticatedCall,
  checked: CheckedRequest,
  deps: RunRequestDependencies,
): Promise<CallEnd> {
  const { kind, model, estimate, endUser } = checked;
  try {
    if (checked.isFree) {
      const release = await takeCount(call, checked, deps);
      if (release !== null) {
        return startRun(
          call,
          admitted(checked, { lease: null, release }),
          deps,
        );
      }
      checked.body.release();
      return left(call);
    }
    if (checked.keeper !== null) {
      return await checked.keeper.run(call, checked);
    }
    const { endpoint } = call;
    const ask = { scope: scopeOf(kind), model, endpoint, estimate, endUser };
    const lease = await admit(call, ask, deps);
    if (lease !== null) {
      if (checked.isKept && wantsToKeep(call, lease)) {
        const end = await keepByDefault(call, { ...checked, lease }, deps);
        if (end !== null) return end;
      }
      return startRun(call, admitted(checked, { lease, release: null }), deps);
    }
    checked.body.release();
    return left(call);
  } catch (error) {
    checked.body.release();
    // If this key keeps sending requests, their bodies are refused before they are
    // parsed.
    const isKeyRefused = error instanceof ApiError &&
      (error.status === 401 || error.status === 403);
    const { keyId } = call.principal;
    if (isKeyRefused) deps.refusedBodies.charge(keyId, checked.parseMs);
    return refused(error, model);
  }
}

/** A checked request with what it holds of its key. */
function admitted(
  { kind, model, stream, estimate, session, body, createAnswer }:
    CheckedRequest,
  { lease, release }: Pick<AdmittedRequest, "lease" | "release">,
): AdmittedRequest {
  const isInTokens = lease !== null && estimate.units === null;
  return {
    kind,
    model,
    stream,
    session,
    tokens: isInTokens ? estimate.totalTokens : undefined,
    body,
    createAnswer,
    lease,
    release,
  };
}

/**
 * Admits a request that only counts: it needs the rights of its key, and takes no place
 * among its requests. Returns the function that ends it, or null if the client has
 * disconnected in the meantime. Throws the `ApiError` of a refusal.
 */
async function takeCount(
  call: AuthenticatedCall,
  { kind, model }: RunFacts,
  deps: RunRequestDependencies,
): Promise<(() => void) | null> {
  const { countLimit, dispatcher, now } = deps;
  const { principal } = call;
  const askedAtMs = now();
  await requireRights(principal, { kinds: [kind], model }, deps);
  if (dispatcher.isStoppedSince(principal.keyId, askedAtMs)) throw keyRevoked();
  if (hasLeft(call)) return null;
  return countLimit.take(principal.keyId);
}

/** Starts the run of a request, which is settled at its end. */
export function startRun(
  call: AuthenticatedCall,
  { kind, model, stream, body, session, tokens, createAnswer, lease, release }:
    AdmittedRequest,
  deps: RunRequestDependencies,
): CallEnd {
  const { now, streamHeadMs } = deps;
  const facts: RunFacts = { kind, model, stream };
  const { response: out } = call.exchange;
  const answer = createAnswer({ out, lease, now, streamHeadMs });
  const onEnded = (outcome: RunOutcome) => {
    release?.();
    const isCharged = release === null;
    const charge = isCharged ? lease?.settle(outcome) ?? null : null;
    recordRun(call, facts, { outcome, isCharged, charge, deps });
  };
  const run = startTracedRun(call, {
    kind,
    model,
    session,
    tokens,
    body,
    queue: lease?.queue,
    onTokens: lease?.onTokens,
    sink: answer,
    onEnded,
  }, deps);
  answer.attach(run);
  return RUNNING;
}

/** Whether the requests of a conversation go to the same of several servers. */
function keepsSessions(catalog: Catalog, model: string): boolean {
  const config = catalog.get(model);
  return config?.affinity === "session" && config.backends.length > 1;
}

/** The client has disconnected. */
export function left({ exchange }: AuthenticatedCall): CallEnd {
  abandon(exchange.response);
  return ANSWERED;
}
