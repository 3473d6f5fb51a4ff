/** The console of a cluster, as a browser without a script uses it. */
import assert from "node:assert/strict";
import {
  createClient,
  type Form,
  makeKey,
  type TestClient,
} from "../../services/key-admin/console_fixture.ts";
import type { Cluster } from "./cluster.ts";

export type ConsoleKey = Awaited<ReturnType<typeof createKey>>;

/** Signs the first owner of a cluster up, or whom `link` is for, and stays signed in. */
export async function openConsole(
  { state }: Cluster,
  link = state.setup_url ?? assert.fail("no set-up link"),
): Promise<TestClient> {
  const browser = createClient(async (request) => {
    const response = await fetch(request, { redirect: "manual" });
    const { status, headers } = response;
    return { status, headers, text: await response.text() };
  }, state.console_url);
  const { status, text } = await browser.post(new URL(link).pathname, {
    email: "ada@example.org",
    new_password: "correct horse battery staple",
  });
  assert.equal(status, 303, text);
  return browser;
}

/** Invites somebody by a browser of an operator, and signs that owner up. */
export async function inviteOwner(
  cluster: Cluster,
  operator: TestClient,
  email: string,
) {
  const { text } = await operator.post("/people", { email });
  const link = matchIn(text, /(http:\S+\/link\/\w+)/);
  const browser = await openConsole(cluster, link);
  const people = (await operator.get("/people")).text;
  const ownerId = matchIn(people, RegExp(`/people/(own_\\w+)">${email}`));
  return { browser, ownerId };
}

/** A key with its version, which every change must name and raises. */
export const createKey = async (browser: TestClient, description: string) => ({
  ...await makeKey(browser, description),
  version: 1,
});

/** Resolves when the console has acknowledged the change. */
export async function changeKey(
  browser: TestClient,
  key: ConsoleKey,
  what: "disable" | "enable" | "delete",
  more: Form = {},
) {
  const form = { version: String(key.version), ...more };
  const answer = await browser.post(`/keys/${key.id}/${what}`, form);
  assert.equal(answer.status, 303, answer.text);
  key.version++;
  return answer;
}

/** What the first group of `form` matches. */
export function matchIn(text: string, form: RegExp): string {
  return form.exec(text)?.[1] ?? assert.fail(`no ${form} in ${text}`);
}
