/** The console of a gateway, as a browser without a script uses it. */
import assert from "node:assert/strict";
import { TestClient } from "../../../services/key-admin/client_fixture.ts";
import type { LaunchedGateway } from "./launched.ts";

/**
 * Signs the first owner of a gateway up, or whom `link` is for, and stays signed in.
 */
export async function openConsole(
  { state }: LaunchedGateway,
  link = state.setup_url ?? assert.fail("no set-up link"),
) {
  const browser = new TestClient(async (request) => {
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

/** What the first group of `form` matches. */
export function matchIn(text: string, form: RegExp): string {
  return form.exec(text)?.[1] ?? assert.fail(`no ${form} in ${text}`);
}
