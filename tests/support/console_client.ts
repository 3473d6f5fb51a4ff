/** The console as a browser without a script uses it: forms, cookies, links. */
import assert from "node:assert/strict";
import { keyForm } from "../../services/key-admin/console_fixture.ts";
import type { Cluster } from "./cluster.ts";

/** An owner of {@link openConsole}. */
export const OWNER = {
  email: "ada@example.org",
  password: "correct horse battery staple",
} as const;

/** A page as it was answered; redirects are not followed. */
export interface ConsolePage {
  status: number;
  location: string;
  text: string;
}

/** A key that was made on the console. */
export interface ConsoleKey {
  id: string;
  value: string;
  /** As the last page showed it; every change needs the current one. */
  version: number;
}

/** A signed-in browser. */
export interface ConsoleClient {
  get(path: string): Promise<ConsolePage>;
  /** Sends a form with the session's token. */
  post(path: string, form: Record<string, string>): Promise<ConsolePage>;
  cookie(): string;
  createKey(description: string): Promise<ConsoleKey>;
  /** Resolves when the console has acknowledged the change. */
  change(
    key: ConsoleKey,
    what: "disable" | "enable" | "delete",
    more?: Record<string, string>,
  ): Promise<ConsolePage>;
}

/** Signs the first owner of a cluster up and stays signed in. */
export async function openConsole(
  { state }: Cluster,
): Promise<ConsoleClient> {
  const cookies = new Map<string, string>();
  const cookie = () =>
    [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
  const send = async (path: string, init: RequestInit) => {
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
  const get = (path: string) => send(path, {});
  const setUp = new URL(state.setup_url ?? assert.fail("no set-up link"));
  const { status } = await send(setUp.pathname, {
    method: "POST",
    body: new URLSearchParams({
      email: OWNER.email,
      new_password: OWNER.password,
    }),
  });
  assert.equal(status, 303);
  const token = matchIn((await get("/keys")).text, field("form_token"));
  const post: ConsoleClient["post"] = (path, form) =>
    send(path, {
      method: "POST",
      body: new URLSearchParams({ form_token: token, ...form }),
    });
  return {
    ...{ get, post, cookie },
    createKey: async (description) => {
      const nonce = matchIn((await get("/keys/new")).text, field("nonce"));
      const body = new URLSearchParams({ form_token: token });
      for (const [name, value] of Object.entries(keyForm(description))) {
        for (const one of [value].flat()) body.append(name, one);
      }
      body.set("nonce", nonce);
      const made = await send("/keys", { method: "POST", body });
      assert.equal(made.status, 201, made.text);
      const value = matchIn(made.text, /(sk-Cg[0-9A-Za-z]{46})/);
      const list = await get(`/keys?search=${value.slice(-4)}`);
      const id = matchIn(list.text, /\/keys\/(key_[0-9A-Za-z]{20})/);
      return { id, value, version: 1 };
    },
    change: async (key, what, more = {}) => {
      const form = { version: String(key.version), ...more };
      const answer = await post(`/keys/${key.id}/${what}`, form);
      assert.equal(answer.status, 303, answer.text);
      key.version++;
      return answer;
    },
  };
}

/** What the first group of `form` matches. */
export function matchIn(text: string, form: RegExp): string {
  return form.exec(text)?.[1] ?? assert.fail(`no ${form} in ${text}`);
}

const field = (name: string): RegExp =>
  new RegExp(`name="${name}" value="([^"]*)"`);
