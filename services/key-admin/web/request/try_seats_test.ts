/**
 * The number of uploads and whole answers that "Try it" holds, in all and of an
 * account.
 */
import assert from "node:assert/strict";
import { TRY_LIMITS } from "../../domain/try/key.ts";
import { ORIGIN, type TestClient } from "../../client_fixture.ts";
import { startConsole, type TestConsole } from "../../console_fixture.ts";
import { upload } from "../../forms_fixture.ts";
import { until } from "../../redis_fixture.ts";

/**
 * Guarantee: nobody who has not signed in takes anything of the page "Try it" that
 * others need, and no account takes more than its share.
 */

const { heldAtOnce, heldPerOwner } = TRY_LIMITS;
const FORM_TYPE = "application/x-www-form-urlencoded";
const UPLOAD_TYPE = "multipart/form-data; boundary=b";

/** Sends the beginning of a form, and the end only when the test asks for it. */
function stall(client: TestClient, path: string, type: string) {
  const cut = Promise.withResolvers<void>();
  const reading = Promise.withResolvers<void>();
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      reading.resolve();
      await cut.promise;
      controller.error(new Error("The client has left"));
    },
  }, { highWaterMark: 0 });
  const answer = client.send(path, {
    method: "POST",
    headers: { origin: ORIGIN, "content-type": type },
    body,
  });
  return {
    answer,
    /** Resolves when the console waits for the rest, or has refused the form. */
    reading: Promise.race([reading.promise, answer]),
    end: async () => {
      cut.resolve();
      return await answer;
    },
  };
}

/** Answers of the API that arrive when the test lets them. */
function holdAnswers(site: TestConsole) {
  const answers: PromiseWithResolvers<Response>[] = [];
  site.deps.askApi = () => {
    const answer = Promise.withResolvers<Response>();
    answers.push(answer);
    return answer.promise;
  };
  return answers;
}

const release = (answers: PromiseWithResolvers<Response>[]) => {
  for (const answer of answers) answer.resolve(Response.json({ text: "Hi" }));
};

Deno.test("API4: forms of strangers that never end take no seat on Try it", async () => {
  await using site = await startConsole();
  site.deps.askApi = () => Promise.resolve(Response.json({ text: "Hi" }));
  const client = await site.signedIn("ada@example.org");
  const stalled = Array.from(
    { length: heldAtOnce + 2 },
    () => stall(site.client(), "/try", FORM_TYPE),
  );
  await Promise.all(stalled.map(({ reading }) => reading));
  assert.equal((await upload(client)).status, 200);
  const path = "/try?kind=transcription";
  const refused = stall(site.client(), path, UPLOAD_TYPE);
  assert.equal((await refused.answer).status, 401, "asked to sign in, unread");
  for (const { end } of stalled) assert.equal((await end()).status, 408);
});

Deno.test("API4: unfinished uploads of an account take its own share of Try it, and give it back", async () => {
  await using site = await startConsole();
  site.deps.askApi = () => Promise.resolve(Response.json({ text: "Hi" }));
  const ada = await site.signedIn("ada@example.org");
  const bob = await site.signedIn("bob@example.org");
  const path = "/try?kind=transcription";
  const stalled = Array.from(
    { length: heldPerOwner },
    () => stall(ada, path, UPLOAD_TYPE),
  );
  await Promise.all(stalled.map(({ reading }) => reading));
  const beyond = await upload(ada);
  assert.equal(beyond.status, 429);
  assert.match(beyond.text, /Your account is sending too many requests/);
  assert.equal(beyond.headers.get("retry-after"), "10");
  assert.equal((await upload(bob)).status, 200);
  for (const { end } of stalled) assert.equal((await end()).status, 408);
  assert.equal((await upload(ada)).status, 200);
});

Deno.test("API4: Try it holds the uploads and answers of a few accounts at the same time, and no more", async () => {
  await using site = await startConsole();
  const answers = holdAnswers(site);
  const accounts = await Promise.all(
    Array.from(
      { length: heldAtOnce / heldPerOwner },
      (_, n) => site.signedIn(`owner${n}@example.org`, `192.0.2.${n + 10}`),
    ),
  );
  const late = await site.signedIn("late@example.org");
  const requests = accounts.flatMap((client) =>
    Array.from({ length: heldPerOwner }, () => upload(client))
  );
  await until(() => answers.length === heldAtOnce);
  const busy = await upload(late);
  assert.equal(busy.status, 503);
  assert.match(busy.text, /Try it is handling too many requests/);
  assert.equal(busy.headers.get("retry-after"), "60");
  release(answers);
  for (const { status } of await Promise.all(requests)) {
    assert.equal(status, 200);
  }
  const answer = upload(late);
  await until(() => answers.length > heldAtOnce);
  release(answers);
  assert.equal((await answer).status, 200);
});
