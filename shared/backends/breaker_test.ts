/** When a circuit breaker opens and closes. */
import assert from "node:assert/strict";
import { CircuitBreaker } from "./breaker.ts";

/**
 * What happens to a breaker, word by word. `f`, `s`, `i`: an attempt fails, succeeds or
 * is ignored at once. `enter`: one begins and goes on; `token` is its first token,
 * `end-f` and `end-s` its end. A number lets that many ms pass, `=1000` is the
 * wait for the next attempt, and a state is that of the breaker.
 */
const histories: readonly [promise: string, history: string][] = [
  [
    "opens if many attempts fail",
    "f s f s f s f s f s f s f s f s closed f open",
  ],
  ["counts no attempt that is ignored", "f f f f i i i closed f open =1000"],
  [
    "forgets failures after successes",
    "f f f f s s s s s s s s f f f f closed",
  ],
  [
    "permits one probe after its open time",
    "f f f f f 999 =1 1 half-open =0 enter =1000 600 open =400 end-s closed =0 s",
  ],
  [
    "stays open twice as long with each probe that fails, up to a bound",
    "f f f f f =1000 1000 f =2000 2000 f =4000 4000 f =8000 8000 f =16000 " +
    "16000 f =30000 30000 f =30000 30000 s closed 1 f f f f f =1000",
  ],
  [
    "permits another probe when one has not begun for as long",
    "f f f f f 1000 enter 999 =1 1 half-open enter =1000 1 end-s closed",
  ],
  [
    "permits another probe at once when one was aborted",
    "f f f f f 1000 i half-open =0 s closed",
  ],
  [
    "ignores the end of attempts that began before it opened",
    "enter enter f f f f f end-s open 1000 half-open end-f half-open s closed",
  ],
  [
    "permits the next probe once one has begun, and believes the first that ends",
    "f f f f f 1000 enter =1000 token =0 f open =2000 end-s open =2000",
  ],
];

const OUTCOMES: { readonly [word: string]: string } = {
  f: "server_error",
  s: "success",
  i: "aborted",
};

for (const [promise, history] of histories) {
  Deno.test(`CircuitBreaker ${promise}`, () => {
    let nowMs = 1_000;
    const breaker = new CircuitBreaker(() => nowMs);
    const enter = () => breaker.enter() ?? assert.fail("refused");
    const running: number[] = [];
    const oldest = () => running[0] ?? assert.fail("none is running");
    for (const [at, word] of history.split(" ").entries()) {
      const [, end] = /^end-(.)$/.exec(word) ?? [];
      const result = OUTCOMES[end ?? word];
      if (/^\d/.test(word)) nowMs += Number(word);
      else if (word === "enter") running.push(enter());
      else if (word === "token") breaker.begun(oldest());
      else if (result !== undefined) {
        breaker.end(end === undefined ? enter() : oldest(), result);
        if (end !== undefined) running.shift();
      } else {
        const { state, waitMs } = breaker;
        assert.equal(
          word.startsWith("=") ? `=${waitMs}` : state,
          word,
          `${at}`,
        );
      }
    }
  });
}
