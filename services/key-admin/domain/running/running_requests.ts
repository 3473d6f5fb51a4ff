/** Asks edges and workers for the running requests, and edges to stop one. */
import { setTimeout as delay } from "node:timers/promises";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  decodeRunningAnswer,
  encodeRunningQuestion,
  type RunningAnswer,
  type RunningQuestion,
  type RunningRequest,
} from "@gateway/shared/bus/running";
import { lastToken, subjects } from "@gateway/shared/bus/subjects";
import type { MonotonicNow } from "@gateway/shared/process/clock";

/** A running request, and where it runs. */
export interface RunningView extends RunningRequest {
  /**
   * The model server that was asked last; empty if none was, or if its worker is
   * silent.
   */
  backend: string;
}

/** The running requests that edges have reported. */
export interface RunningList {
  /** The oldest first. */
  requests: readonly RunningView[];
  /**
   * How many edges have answered, and how many have not in time, although they did
   * before.
   */
  edges: number;
  silentEdges: number;
  /** How many further requests edges have left out, because there are too many. */
  more: number;
}

/** The outcome of an order to stop a request. */
export type StopResult = "stopped" | "ended" | "unreachable";

/** Dependencies of {@link RunningRequests}. */
export interface RunningRequestsOptions {
  bus: Pick<BusLink, "isConnected" | "publish" | "subscribe">;
  now: MonotonicNow;
  /** The id of a question, such as `newInstanceId`. */
  newId: () => string;
  /** Resolves after this many ms. */
  pause?: (ms: number) => Promise<unknown>;
}

/** Edges that have answered before are waited for this long, in ms. */
const ANSWER_MS_MAX = 1_500;
/** Without any that are known, whoever is there has this long. */
const FIRST_ANSWER_MS = 600;
/** New edges and the workers have at least this long. */
const ANSWER_MS = 150;
const LOOK_MS = 10;

type EdgeAnswer = RunningAnswer & { from: "edge" };

/** The answers to one question. */
class Answers {
  readonly edges = new Map<string, EdgeAnswer>();
  readonly backends = new Map<string, string>();

  take(instanceId: string, answer: RunningAnswer): void {
    if (answer.from === "edge") this.edges.set(instanceId, answer);
    else {
      for (const [requestId, backend] of Object.entries(answer.backends)) {
        this.backends.set(requestId, backend);
      }
    }
  }
}

/**
 * Finds and stops running requests. Between two questions it keeps only the ids of
 * edges.
 */
export class RunningRequests {
  readonly #options: RunningRequestsOptions;
  readonly #pause: (ms: number) => Promise<unknown>;
  readonly #questions = new Map<string, Answers>();
  /** The edges that have answered the last question. */
  #edgeIds = new Set<string>();

  constructor(options: RunningRequestsOptions) {
    this.#options = options;
    this.#pause = options.pause ?? ((ms) => delay(ms));
    options.bus.subscribe(subjects.allRunning, ({ subject, data }) => {
      const answer = decodeRunningAnswer(data);
      if (answer === null) return;
      this.#questions.get(answer.ask)?.take(lastToken(subject), answer);
    });
  }

  /** The requests of an account, or of all; null: the bus is down. */
  async list(account: string | null): Promise<RunningList | null> {
    const ask = this.#options.newId();
    const edgeIds = this.#edgeIds;
    const answers = await this.#ask({ what: "list", ask, account });
    if (answers === null) return null;
    const { edges, backends } = answers;
    const lists = [...edges.values()];
    const requests = lists.flatMap(({ runs }) => runs)
      .sort((a, b) => b.ageMs - a.ageMs)
      .map((run) => ({ ...run, backend: backends.get(run.requestId) ?? "" }));
    const total = lists.reduce((sum, each) => sum + each.total, 0);
    return {
      requests,
      edges: edges.size,
      silentEdges: [...edgeIds].filter((id) => !edges.has(id)).length,
      more: total - requests.length,
    };
  }

  /** Stops a request of an account, wherever it runs. */
  async stop(
    { requestId, account }: Pick<RunningRequest, "requestId" | "account">,
  ): Promise<StopResult> {
    const ask = this.#options.newId();
    const question = { what: "stop", ask, account, requestId } as const;
    const answers = await this.#ask(question);
    if (answers === null || answers.edges.size === 0) return "unreachable";
    return hasStopped(answers) ? "stopped" : "ended";
  }

  /**
   * Asks, and waits for the answers that are expected. Returns null if the bus is down.
   */
  async #ask(question: RunningQuestion): Promise<Answers | null> {
    const { bus, now } = this.#options;
    if (!bus.isConnected) return null;
    const answers = new Answers();
    this.#questions.set(question.ask, answers);
    try {
      bus.publish(subjects.runningWanted, encodeRunningQuestion(question));
      const askedAtMs = now();
      while (!this.#isAnswered(answers, now() - askedAtMs)) {
        await this.#pause(LOOK_MS);
      }
    } finally {
      this.#questions.delete(question.ask);
    }
    this.#edgeIds = new Set(answers.edges.keys());
    return answers;
  }

  #isAnswered(answers: Answers, waitedMs: number): boolean {
    if (hasStopped(answers) || waitedMs >= ANSWER_MS_MAX) return true;
    const expected = [...this.#edgeIds];
    if (expected.length === 0) return waitedMs >= FIRST_ANSWER_MS;
    return waitedMs >= ANSWER_MS &&
      expected.every((id) => answers.edges.has(id));
  }
}

const hasStopped = ({ edges }: Answers): boolean =>
  [...edges.values()].some((each) => each.hasStopped);
