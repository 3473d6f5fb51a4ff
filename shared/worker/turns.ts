/**
 * Whose turn it is when a slot of a worker comes free, while requests wait at edges.
 *
 * An edge that frees a slot is the first to know, and would use it again for a request
 * of its own; an edge with few slots would starve. So the worker decides: start-time
 * fair queuing over edges, like that of an edge over its accounts
 * (`fair_queue.ts` of the edge). Each edge has a tag, to which each request that has
 * waited adds the tokens that it asks for, divided by the weights of the accounts that
 * wait there. So accounts count, not requests: a thousand of one account at one edge
 * do not delay the first of another at a second edge. If it is the turn of another
 * edge, the slot is kept for that one for a moment, and both hear of it.
 *
 * Requests that have waited for less than an edge's beat are too quick for this: what
 * is told of them is outdated when it arrives. Then every edge uses what it frees.
 *
 * An edge uses a slot that it frees as soon as it hears of the end, so that slot is
 * kept for it until its next job, or until it acknowledges the end without one: then
 * nothing waits there any more. A clock would tell less: on a busy machine, the job
 * takes longer than any wait that would leave no slots idle on others.
 */
import {
  type EdgeWaiting,
  type LaneWaiting,
  NOTHING_WAITS,
  type Turn,
} from "../bus/waiting.ts";
import type { RejectReason } from "../bus/stream/payloads.ts";
import { DISPATCH_LIMITS } from "../limits.ts";
import type { TurnResult } from "./jobs/job_report.ts";

/** What a worker tells an edge, but for its own name. */
export type TurnNews = Omit<Turn, "worker">;

/** What turns need of their worker. */
export interface TurnsOptions {
  readonly now: () => number;
  /** Whether a request of this lane could run here now. */
  readonly mayRun: (lane: string) => boolean;
  readonly tell: (edgeId: string, news: TurnNews) => void;
  readonly count?: (result: TurnResult) => void;
}

/** An edge that has told of requests that wait, until it is lost. */
interface WaitingEdge {
  readonly id: string;
  waiting: EdgeWaiting;
  /** When it has told so. */
  toldAtMs: number;
  /** What the turns whose slots are kept have added to its tag, as estimated. */
  readonly estimates: number[];
  /** How far it has come, in tokens. */
  tag: number;
  /** Which of all turns was its last one; 0: it has had none. */
  lastTurn: number;
  /** Until when slots are kept for it. */
  keptUntilMs: number;
  /** The requests that have freed those of them that were its own. */
  readonly own: Set<string>;
}

/** An edge whose turn it may be. */
interface Candidate {
  readonly edge: WaitingEdge;
  /** What its turn adds to its tag, if its request asks for as much as the mean. */
  readonly step: number;
  /** How long its oldest request had waited when it told of it, and has by now. */
  readonly toldMs: number;
  readonly oldestMs: number;
}

/** The turns of the edges at one worker. */
export class Turns {
  readonly #options: TurnsOptions;
  readonly #edges = new Map<string, WaitingEdge>();
  /** Edges at which something waits. */
  #waiting = 0;
  /** The tag of the edge that was served last. */
  #servedTag = 0;
  /** Turns so far. */
  #turns = 0;
  #kept = 0;
  #freeBefore = 0;

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  /** Slots that are kept, for any edge. */
  get kept(): number {
    return this.#kept;
  }

  /** Slots that are kept for others than this edge. */
  keptBesides(edgeId: string): number {
    if (this.#kept === 0) return 0;
    return this.#kept - (this.#edges.get(edgeId)?.estimates.length ?? 0);
  }

  /** An edge has told what waits there. */
  onBeat(edgeId: string, waiting: EdgeWaiting): void {
    let edge = this.#edges.get(edgeId);
    if (edge === undefined) {
      if (waiting.size === 0) return;
      edge = {
        id: edgeId,
        waiting: NOTHING_WAITS,
        toldAtMs: 0,
        estimates: [],
        tag: 0,
        lastTurn: 0,
        keptUntilMs: 0,
        own: new Set(),
      };
      this.#edges.set(edgeId, edge);
    }
    const hasWaited = edge.waiting.size > 0;
    if (!hasWaited) edge.tag = Math.max(edge.tag, this.#servedTag);
    this.#waiting += Number(waiting.size > 0) - Number(hasWaited);
    edge.waiting = waiting;
    edge.toldAtMs = this.#options.now();
  }

  /** An edge is silent: nothing is kept for it. */
  onEdgeLost(edgeId: string): void {
    const edge = this.#edges.get(edgeId);
    if (edge === undefined) return;
    this.#giveUp(edge);
    this.#edges.delete(edgeId);
  }

  /**
   * The worker takes a job of an edge, which uses the slot that was kept for it, if
   * any. `tokens`: what it asks for if it has waited.
   */
  onJob(edgeId: string, tokens?: number): void {
    const edge = this.#waitingEdge(edgeId);
    if (edge === null) return;
    const estimate = this.#release(edge);
    const { weight } = this.#sumOf(edge);
    if (tokens === undefined || weight === 0) return;
    edge.tag += tokens / weight - estimate;
  }

  /**
   * The worker rejects a job of an edge: it has had no turn. One that the worker has
   * stood still for comes again, and finds its slot.
   */
  onRejectedJob(edgeId: string, reason: RejectReason): void {
    const edge = this.#waitingEdge(edgeId);
    if (edge === null) return;
    if (reason === "stale") this.#keepLonger(edge);
    else edge.tag -= this.#release(edge);
  }

  /** A request of an edge has freed its slot. Its end has not left yet. */
  onSlotFree(edgeId: string, model: string | null, requestId: string): void {
    if (this.#waiting === 0) return;
    const next = this.#next();
    if (next === null) return;
    this.#serve(next);
    if (next.edge.id === edgeId) {
      next.edge.own.add(requestId);
      return;
    }
    this.#options.tell(edgeId, { model, slot: "passed" });
    this.#tellKept(next.edge, model);
  }

  /**
   * An edge has the end of a request. If its slot is still kept for it, it does not
   * need it. False if nobody else does: all may have it.
   */
  onEndTaken(edgeId: string, requestId: string): boolean {
    const edge = this.#edges.get(edgeId);
    if (!edge?.own.has(requestId)) return true;
    edge.tag -= this.#release(edge, requestId);
    return this.#passOn(edge);
  }

  /** An edge does not need its slot. False if nobody else does: all may have it. */
  onReturn(edgeId: string): boolean {
    const edge = this.#edges.get(edgeId);
    if (edge === undefined || edge.estimates.length === 0) return true;
    this.#options.count?.("returned");
    edge.tag -= this.#release(edge);
    return this.#passOn(edge);
  }

  /**
   * Advances time: gives up slots that were not used, and keeps for the next edge one
   * that was free for a tick.
   */
  onTick(free: number): void {
    const unused = Math.min(free, this.#freeBefore) - this.#kept;
    this.#freeBefore = free;
    if (this.#waiting === 0 && this.#kept === 0) return;
    const nowMs = this.#options.now();
    for (const edge of this.#edges.values()) {
      if (edge.estimates.length === 0 || nowMs < edge.keptUntilMs) continue;
      this.#options.count?.("expired");
      this.#giveUp(edge);
    }
    if (unused > 0) this.#giveNext();
  }

  /** An edge, unless it has told of nothing. */
  #waitingEdge(edgeId: string): WaitingEdge | null {
    if (this.#kept === 0 && this.#waiting === 0) return null;
    return this.#edges.get(edgeId) ?? null;
  }

  #keepLonger(edge: WaitingEdge): void {
    edge.own.clear();
    edge.keptUntilMs = this.#options.now() + DISPATCH_LIMITS.acceptMs;
  }

  /** Keeps nothing for an edge that does not use it: what it has told is outdated. */
  #giveUp(edge: WaitingEdge): void {
    while (edge.estimates.length > 0) edge.tag -= this.#release(edge);
    this.onBeat(edge.id, NOTHING_WAITS);
  }

  /** Gives a slot of an edge to the next one: what the edge has told is outdated. */
  #passOn(edge: WaitingEdge): boolean {
    this.onBeat(edge.id, NOTHING_WAITS);
    return this.#giveNext();
  }

  #giveNext(): boolean {
    const next = this.#next();
    if (next === null) return false;
    this.#serve(next);
    this.#tellKept(next.edge, null);
    return true;
  }

  /** The edge whose turn it is; null: all may have the slot. */
  #next(): Candidate | null {
    let next: Candidate | null = null;
    let toldMs = 0;
    for (const edge of this.#edges.values()) {
      const candidate = this.#candidate(edge);
      if (candidate === null) continue;
      toldMs = Math.max(toldMs, candidate.toldMs);
      if (next === null || isBefore(candidate, next)) next = candidate;
    }
    return toldMs >= DISPATCH_LIMITS.edgeBeatMs ? next : null;
  }

  #candidate(edge: WaitingEdge): Candidate | null {
    const { requests, tokens, weight, oldestMs } = this.#sumOf(edge);
    if (requests === 0) return null;
    const ageMs = this.#options.now() - edge.toldAtMs;
    const step = tokens / requests / weight;
    return { edge, step, toldMs: oldestMs, oldestMs: oldestMs + ageMs };
  }

  /** What waits at an edge and could run here. */
  #sumOf({ waiting }: WaitingEdge): LaneWaiting {
    const sum = { requests: 0, tokens: 0, weight: 0, oldestMs: 0 };
    for (const [lane, waits] of waiting) {
      if (!this.#options.mayRun(lane)) continue;
      sum.requests += waits.requests;
      sum.tokens += waits.tokens;
      sum.weight += waits.weight;
      sum.oldestMs = Math.max(sum.oldestMs, waits.oldestMs);
    }
    return sum;
  }

  /** Keeps a slot for an edge. */
  #serve({ edge, step }: Candidate): void {
    this.#servedTag = Math.max(this.#servedTag, edge.tag);
    edge.tag += step;
    edge.estimates.push(step);
    edge.keptUntilMs = this.#options.now() + DISPATCH_LIMITS.acceptMs;
    this.#kept += 1;
    this.#turns += 1;
    edge.lastTurn = this.#turns;
  }

  #tellKept(edge: WaitingEdge, model: string | null): void {
    this.#options.count?.("given");
    this.#options.tell(edge.id, { model, slot: "kept" });
  }

  /**
   * Keeps one slot less for an edge, if any: that of this request of its own, or of the
   * first. Returns what its turn has added to the tag.
   */
  #release(edge: WaitingEdge, requestId?: string): number {
    const estimate = edge.estimates.shift();
    if (estimate === undefined) return 0;
    this.#kept -= 1;
    const [first = ""] = edge.own;
    edge.own.delete(requestId ?? first);
    return estimate;
  }
}

function isBefore(a: Candidate, b: Candidate): boolean {
  if (a.edge.tag !== b.edge.tag) return a.edge.tag < b.edge.tag;
  if (a.edge.lastTurn !== b.edge.lastTurn) {
    return a.edge.lastTurn < b.edge.lastTurn;
  }
  return a.oldestMs > b.oldestMs;
}
