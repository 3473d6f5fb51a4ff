/** A backend that does what the test says, event by event. */
import type {
  Backend,
  BackendCall,
  BackendEvent,
} from "../../services/chat-worker/backends/backend.ts";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { sleep } from "./wait_for.ts";

/** One call of the backend, held by the test. */
export interface ScriptedCall {
  readonly request: ChatRequest;
  readonly call: BackendCall;
  /** When the gateway told the backend to stop; null while it has not. */
  readonly abortedAtMs: number | null;
  /** Lets the backend yield these events. */
  say(...events: BackendEvent[]): void;
  /** Finishes every choice and ends the answer. */
  end(usage?: Usage): void;
  fail(error: Error): void;
}

export interface ScriptedBackend extends Backend {
  readonly calls: ScriptedCall[];
}

/** Usage of one prompt token and `completion` others. */
export function usageOf(completion: number): Usage {
  return {
    prompt_tokens: 1,
    completion_tokens: completion,
    total_tokens: 1 + completion,
  };
}

/** Text as a delta of the first choice. */
export function text(content: string): BackendEvent {
  return { type: "delta", index: 0, content };
}

/** Answers "Hello" at once. */
export function hello(call: ScriptedCall): void {
  call.say(text("Hello"));
  call.end();
}

type Step = { events: BackendEvent[] } | { error: Error } | "end";

/** A backend whose calls wait for the test. `onCall` may answer at once. */
export function scriptedBackend(
  onCall: (call: ScriptedCall) => void = () => {},
): ScriptedBackend {
  const calls: ScriptedCall[] = [];
  return {
    calls,
    async *complete(request, call) {
      const steps: Step[] = [];
      let wake = () => {};
      let abortedAtMs: number | null = null;
      const push = (step: Step) => {
        steps.push(step);
        wake();
      };
      const scripted: ScriptedCall = {
        request,
        call,
        get abortedAtMs() {
          return abortedAtMs;
        },
        say: (...events) => push({ events }),
        end: (usage = usageOf(1)) => {
          const finishes = Array.from(
            { length: request.n },
            (_, index): BackendEvent => ({
              type: "finish",
              index,
              reason: "stop",
            }),
          );
          push({ events: [...finishes, { type: "usage", usage }] });
          push("end");
        },
        fail: (error) => push({ error }),
      };
      const onAbort = () => {
        abortedAtMs = performance.now();
        wake();
      };
      call.signal.addEventListener("abort", onAbort);
      calls.push(scripted);
      onCall(scripted);
      try {
        while (true) {
          call.signal.throwIfAborted();
          const step = steps.shift();
          if (step === "end") return;
          if (step === undefined) {
            await new Promise<void>((resolve) => wake = resolve);
          } else if ("error" in step) throw step.error;
          else yield step.events;
        }
      } finally {
        call.signal.removeEventListener("abort", onAbort);
      }
    },
  };
}

/**
 * A backend whose answer follows from the request: `seed` says what it says and
 * `max_tokens` how much. It counts what it makes, as the ledger to compare with.
 */
export interface TokenBackend extends Backend {
  /** Tokens made for a request, the latest call of it, by its seed. */
  readonly produced: ReadonlyMap<number, number>;
  /** Calls that have not ended. */
  readonly running: number;
}

export interface TokenBackendOptions {
  /** Pause before each token. */
  tokenMs: number;
  /** Fails before this token of a request; null: never. */
  failsAt?: (seed: number) => number | null;
}

/** Token `index` of the answer to the request with this seed. */
export function tokenOf(seed: number, index: number): string {
  return `${seed}.${index} `;
}

/** The whole answer. */
export function answerOf(seed: number, tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => tokenOf(seed, index))
    .join("");
}

export function tokenBackend(options: TokenBackendOptions): TokenBackend {
  const produced = new Map<number, number>();
  let running = 0;
  return {
    produced,
    get running() {
      return running;
    },
    async *complete(request, { signal }) {
      const seed = request.seed ?? 0;
      const tokens = request.max_tokens ?? 1;
      const failsAt = options.failsAt?.(seed) ?? null;
      produced.set(seed, 0);
      running += 1;
      try {
        for (let index = 0; index < tokens; index += 1) {
          await sleep(options.tokenMs);
          signal.throwIfAborted();
          if (index === failsAt) {
            throw new ApiError("upstream_error", "The model server failed.");
          }
          produced.set(seed, index + 1);
          yield [text(tokenOf(seed, index))];
        }
        const last: BackendEvent[] = [
          { type: "finish", index: 0, reason: "stop" },
          { type: "usage", usage: usageOf(tokens) },
        ];
        yield last;
      } finally {
        running -= 1;
      }
    },
  };
}
