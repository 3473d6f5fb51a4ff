/**
 * Guarantee (promise 3): what the console says of a key holds for the next request
 * on every edge, under load too, and running requests end when the owner says so.
 */
import assert from "node:assert/strict";
import {
  type Cluster,
  startCluster,
  syncEachWrite,
} from "../support/cluster.ts";
import { waitFor } from "../support/wait_for.ts";

const EDGES = 3;
/** With three edges a thousand checks of each kind. */
const ROUNDS = 334;
const STOP_MS_MAX = 1_000;
const EMAIL = "ada@example.org";
const PASSWORD = "correct horse battery staple";

interface Page {
  status: number;
  location: string;
  text: string;
}

/** What a browser does with forms and cookies, and no more. */
interface Console {
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

/** The first owner signs up and finds the key that the launcher made. */
async function signUp(cluster: Cluster) {
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

function match(text: string, form: RegExp): string {
  return form.exec(text)?.[1] ?? assert.fail(`no ${form} in ${text}`);
}

/** The status of a cheap request with the key, on every edge at once. */
function askEdges(
  { state }: Cluster,
  authorization = `Bearer ${state.api_key}`,
): Promise<number[]> {
  return Promise.all(state.edge_urls.map(async (url) => {
    const response = await fetch(`${url}/v1/models`, {
      headers: { authorization },
    });
    await response.body?.cancel();
    return response.status;
  }));
}

/** Keeps every edge busy until told to stop. Gives the number of requests. */
function startLoad(cluster: Cluster): () => Promise<number> {
  let isOver = false;
  let requests = 0;
  const loops = cluster.state.edge_urls.map(async () => {
    while (!isOver) requests += (await askEdges(cluster)).length;
  });
  return async () => {
    isOver = true;
    await Promise.all(loops);
    return requests;
  };
}

Deno.test("the console takes effect on every edge", async (t) => {
  await using cluster = await startCluster({
    edges: EDGES,
    env: { SIMULATOR_TOKENS_PER_SECOND: "20" },
  });
  await syncEachWrite(cluster);
  const { browser, keyId, token } = await signUp(cluster);
  let version = 1;
  const change = async (what: string, more: Record<string, string> = {}) => {
    const form = { form_token: token, version: String(version), ...more };
    const answer = await browser.post(`/keys/${keyId}/${what}`, form);
    assert.equal(answer.status, 303, answer.text);
    version++;
    return answer;
  };

  await t.step(
    "disabled is 403 and enabled is 200 at once, under load",
    async () => {
      const stopLoad = startLoad(cluster);
      const wrong: string[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        for (
          const [what, expected] of [["disable", 403], ["enable", 200]] as const
        ) {
          await change(what);
          for (const status of await askEdges(cluster)) {
            if (status !== expected) wrong.push(`${what} ${round}: ${status}`);
          }
        }
      }
      assert.ok(await stopLoad() > ROUNDS, "there was load");
      assert.deepEqual(wrong, []);
    },
  );

  await t.step(
    "a running stream ends within a second, with an error frame",
    async () => {
      const response = await fetch(`${cluster.baseUrl(1)}/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${cluster.state.api_key}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "neutral-3.7-plus",
          stream: true,
          messages: [{ role: "user", content: "Tell a long story" }],
        }),
      });
      const reader = (response.body ?? assert.fail("no body"))
        .pipeThrough(new TextDecoderStream()).getReader();
      assert.match((await reader.read()).value ?? "", /^data: /);
      const answer = await change("disable", { stop_running: "on" });
      assert.match(answer.location, /done=disabled_stopped/);
      const startMs = performance.now();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        rest += value;
      }
      assert.ok(performance.now() - startMs < STOP_MS_MAX);
      assert.match(rest, /data: \{"error":\{.*"code":"key_revoked"/);
      assert.ok(!rest.includes("[DONE]"));
      await change("enable");
    },
  );

  await t.step("the request is counted on the key's page", async () => {
    await waitFor(async () => {
      const { text } = await browser.get(`/keys/${keyId}`);
      const requests = match(text, /<dt>Requests<\/dt><dd><span>(\d+)<\/span>/);
      return Number(requests) >= 1 ? true : undefined;
    }, { what: "the request to be counted", timeoutMs: 10_000 });
  });

  await t.step(
    "API5: a session of the console is 401 on the edges",
    async () => {
      const session = match(browser.cookie(), /sid=([0-9A-Za-z]{43})/);
      const statuses = await askEdges(cluster, `Bearer ${session}`);
      assert.deepEqual(statuses, [401, 401, 401]);
      for (const url of cluster.state.edge_urls) {
        const response = await fetch(`${url}/v1/models`, {
          headers: { cookie: browser.cookie() },
        });
        await response.body?.cancel();
        assert.equal(response.status, 401);
      }
    },
  );

  await t.step("deleted is 401 at once", async () => {
    const tail = cluster.state.api_key.slice(-4);
    await change("delete", { tail });
    assert.deepEqual(await askEdges(cluster), [401, 401, 401]);
  });

  await t.step("ASVS 16.2.5: no key in any log", async () => {
    const form = /sk-Cg[0-9A-Za-z]{6}/;
    assert.match(cluster.state.api_key, form);
    const logs = await cluster.logs();
    assert.match(logs, /"event":"/);
    assert.doesNotMatch(logs, form);
  });
});
