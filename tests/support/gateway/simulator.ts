/** A model simulator in the process of a test, and what tests ask it to do. */
import type { SeenRequest } from "../../../services/model-simulator/serving/answer.ts";
import {
  type RunningSimulator,
  serveSimulator,
} from "../../../services/model-simulator/simulator.ts";
import { until } from "../wait_for.ts";

/** A simulator in this process, and the requests that reached it. */
export interface WatchedSimulator extends RunningSimulator {
  readonly requests: SeenRequest[];
  /** The request with this number, from 1, as soon as it has come. */
  request(number: number): Promise<SeenRequest>;
}

/** Starts a simulator on a free port. */
export function startSimulator(): WatchedSimulator {
  const requests: SeenRequest[] = [];
  const onRequest = (run: SeenRequest) => void requests.push(run);
  return Object.assign(serveSimulator({ onRequest }), {
    requests,
    request: (number: number) => until(() => requests[number - 1]),
  });
}

/** Returns the messages of a request that tells the simulator what to do. */
export function simulates(controls: string) {
  return [{ role: "user" as const, content: `[simulator: ${controls}]` }];
}

/** A stream that does not end by itself in the time of a test. */
export const LONG = {
  stream: true,
  max_tokens: 10_000,
  messages: simulates("10000 tokens, 20 tokens per second"),
};
