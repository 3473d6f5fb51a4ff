/** A backend that does what the test says, event by event. */
import type {
  Backend,
  BackendCall,
  BackendEvent,
} from "../../services/chat-worker/backends/backend.ts";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";

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
    name: "scripted",
    fingerprint: null,
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
