/**
 * Guarantee: failures are not multiplied. A request that kills its worker is offered
 * to two workers at most, whenever they die.
 */
import assert from "node:assert/strict";
import { edgeStreamWildcard } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { ask } from "../support/chat_outcome.ts";
import {
  type MiniWorker,
  startMiniEdge,
  startMiniWorker,
} from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { hello, scriptedBackend } from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

const WORKERS = 6;
const DEADLY_SEED = 13;
const SERVED = 10;

const { attemptsMax } = DISPATCH_LIMITS;
const deaths: {
  when: string;
  /** The edge has heard of the acceptance. */
  isAccepted: boolean;
  code: string;
}[] = [
  {
    when: "after it was accepted",
    isAccepted: true,
    code: "worker_lost",
  },
  {
    when: "before its acceptance is received",
    isAccepted: false,
    code: "overloaded",
  },
];

for (const { when, isAccepted, code } of deaths) {
  Deno.test(`a request that kills its worker ${when} kills ${attemptsMax}, then fails, and others are served`, async () => {
    await using nats = await startNatsServer();
    const servers = [nats.server];
    await using edge = await startMiniEdge({ servers });
    await using stack = new AsyncDisposableStack();
    const killed: Promise<void>[] = [];
    let onFrame = () => {};
    edge.link.subscribe(edgeStreamWildcard(edge.id), () => onFrame());
    const die = (worker: MiniWorker) => {
      onFrame = () => {};
      killed.push(worker.kill());
    };
    const start = async () => {
      const worker: MiniWorker = stack.use(
        await startMiniWorker({
          servers,
          backend: scriptedBackend((call) => {
            if (call.request.seed !== DEADLY_SEED) hello(call);
            else if (isAccepted) onFrame = () => die(worker);
            else die(worker);
          }),
        }),
      );
    };
    await Promise.all(Array.from({ length: WORKERS }, start));
    await waitFor(() => edge.workers.totals().workers === WORKERS, {
      what: "all workers",
    });
    assert.partialDeepStrictEqual(await ask(edge, { seed: DEADLY_SEED }), {
      kind: "http_error",
      errorCode: code,
    });
    assert.equal(killed.length, attemptsMax);
    await Promise.all(killed);
    for (let seed = 0; seed < SERVED; seed += 1) {
      assert.equal((await ask(edge, { seed })).kind, "complete");
    }
    assert.equal(killed.length, attemptsMax);
    assert.equal(edge.settlements.length, 1 + SERVED);
  });
}
