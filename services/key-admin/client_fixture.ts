/** A browser that runs no scripts, for tests of the console. */
import assert from "node:assert/strict";

/** The origin of the console in tests. */
export const ORIGIN = "https://console.test";

/** A response whose body was read as text. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/** The fields of a form; one with several values is sent once for each. */
export type Form = Record<string, string | string[]>;

/** Sends a request and reads the whole answer. */
type Fetch = (request: Request) => Promise<Answer>;

/**
 * A browser without a script, at a console of `origin`. It keeps cookies and follows no
 * redirects.
 */
export class TestClient {
  /** The values of the cookies by name. */
  readonly cookies = new Map<string, string>();
  readonly #fetch: Fetch;
  readonly #origin: string;

  constructor(fetch: Fetch, origin = ORIGIN) {
    this.#fetch = fetch;
    this.#origin = origin;
  }

  /** Sends exactly this request, with the cookies. */
  async send(path: string, init: RequestInit): Promise<Answer> {
    const headers = new Headers(init.headers);
    if (!headers.has("host")) headers.set("host", new URL(this.#origin).host);
    if (this.cookies.size > 0) {
      const pairs = [...this.cookies].map(([name, value]) =>
        `${name}=${value}`
      );
      headers.set("cookie", pairs.join("; "));
    }
    const url = new URL(path, this.#origin);
    const answer = await this.#fetch(new Request(url, { ...init, headers }));
    for (const line of answer.headers.getSetCookie()) this.#keep(line);
    return answer;
  }

  #keep(cookieLine: string): void {
    const [pair = ""] = cookieLine.split(";");
    const [name = "", value = ""] = pair.split("=");
    if (/max-age=0/i.test(cookieLine)) this.cookies.delete(name);
    else this.cookies.set(name, value);
  }

  /** Gets a page. */
  get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send(path, { headers });
  }

  /** Sends a form as our own page does. */
  post(path: string, form: Form = {}, more: RequestInit = {}): Promise<Answer> {
    const headers = { origin: this.#origin, "sec-fetch-site": "same-origin" };
    const body = fieldsOf(form);
    return this.send(path, { method: "POST", headers, body, ...more });
  }
}

/** The body of a form. */
export const fieldsOf = (form: Form): URLSearchParams =>
  new URLSearchParams(
    Object.entries(form).flatMap(([name, values]) =>
      [values].flat().map((value) => [name, value])
    ),
  );

/** The value of a hidden field of a page; fails if there is none. */
export const hiddenField = (page: string, name: string): string =>
  new RegExp(`name="${name}" value="([^"]*)"`).exec(page)?.[1] ??
    assert.fail(`no field ${name} in ${page}`);
