import assert from "node:assert/strict";
import { listenForStop, type StopSignal } from "./stop_signals.ts";

type Step = [atMs: number, signal: StopSignal];

const CASES: {
  name: string;
  steps: Step[];
  nohup?: boolean;
  stop: boolean;
  hurry: boolean;
}[] = [
  { name: "nothing", steps: [], stop: false, hurry: false },
  { name: "Ctrl-C", steps: [[0, "SIGINT"]], stop: true, hurry: false },
  { name: "SIGTERM", steps: [[0, "SIGTERM"]], stop: true, hurry: false },
  { name: "hang-up", steps: [[0, "SIGHUP"]], stop: true, hurry: false },
  {
    name: "hang-up under nohup",
    steps: [[0, "SIGHUP"]],
    nohup: true,
    stop: false,
    hurry: false,
  },
  {
    name: "one Ctrl-C that arrives three times",
    steps: [[0, "SIGINT"], [2, "SIGINT"], [300, "SIGINT"]],
    stop: true,
    hurry: false,
  },
  {
    name: "two Ctrl-C",
    steps: [[0, "SIGINT"], [301, "SIGINT"]],
    stop: true,
    hurry: true,
  },
  {
    name: "SIGTERM, then Ctrl-C",
    steps: [[0, "SIGTERM"], [1_000, "SIGINT"]],
    stop: true,
    hurry: true,
  },
  {
    name: "Ctrl-C, then SIGTERM because npx has gone",
    steps: [[0, "SIGINT"], [1_000, "SIGTERM"], [2_000, "SIGHUP"]],
    stop: true,
    hurry: false,
  },
];

Deno.test("listenForStop() tells a request to stop from a request to hurry", async (t) => {
  for (const { name, steps, nohup = false, stop, hurry } of CASES) {
    await t.step(name, () => {
      const listeners = new Map<string, () => void>();
      let now = 50;
      const request = listenForStop({
        addListener: (signal, listener) => listeners.set(signal, listener),
        isHangUpIgnored: nohup,
        now: () => now,
      });
      for (const [atMs, signal] of steps) {
        now = 50 + atMs;
        listeners.get(signal)?.();
      }
      assert.equal(request.requested.aborted, stop);
      assert.equal(request.hurry.aborted, hurry);
    });
  }
});
