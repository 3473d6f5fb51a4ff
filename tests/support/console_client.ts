/** The console of a running cluster, as a browser without scripts sees it. */
import assert from "node:assert/strict";
import type { Cluster } from "./cluster.ts";

const EMAIL = "ada@example.org";
const PASSWORD = "correct horse battery staple";

/** An answer of the console. */
export interface Page {
  status: number;
  location: string;
  text: string;
}

/** What a browser does with forms and cookies, and no more. */
export interface Console {
  get(path: string): Promise<Page>;
  post(path: string, form: Record<string, string>): Promise<Page>;
  cookie(): string;
}

function openConsole({ state }: Cluster): Console {
  const cookies = new Map<string, string>();
  const cookie = () =>
    [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
  const send = async (path: string, init: RequestInit): Promise<Page> => {
    const response = await fetch(new URL(path, state.console_url), {
      ...init,
      redirect: "manual",
      headers: {
        ...(cookies.size === 0 ? {} : { cookie: cookie() }),
        origin: state.console_url,
        "sec-fetch-site": "same-origin",
      },
    });
    for (const line of response.headers.getSetCookie()) {
      const [name = "", value = ""] = (line.split(";")[0] ?? "").split("=");
      cookies.set(name, value);
    }
    return {
      status: response.status,
      location: response.headers.get("location") ?? "",
      text: await response.text(),
    };
  };
  return {
    cookie,
    get: (path) => send(path, {}),
    post: (path, form) =>
      send(path, { method: "POST", body: new URLSearchParams(form) }),
  };
}

/** Who has signed up, and the key that the launcher made. */
export interface SignedUp {
  browser: Console;
  keyId: string;
  /** For every form. */
  token: string;
}

/** The first owner signs up and finds the key that the launcher made. */
export async function signUp(cluster: Cluster): Promise<SignedUp> {
  const browser = openConsole(cluster);
  const link = new URL(
    cluster.state.setup_url ?? assert.fail("no set-up link"),
  );
  const form = { email: EMAIL, new_password: PASSWORD };
  assert.equal((await browser.post(link.pathname, form)).status, 303);
  const { text } = await browser.get("/keys");
  return {
    browser,
    keyId: match(text, /\/keys\/(key_[0-9A-Za-z]{20})/),
    token: match(text, /name="form_token" value="([^"]*)"/),
  };
}

/** What the first group of `form` finds in `text`; fails when it finds nothing. */
export function match(text: string, form: RegExp): string {
  return form.exec(text)?.[1] ?? assert.fail(`no ${form} in ${text}`);
}
