/** What tests do with a release whose images are those of this commit. */
import assert from "node:assert/strict";
import { chat, isWhole, MODEL, type Target } from "./load.ts";
import { type Namespace, RELEASE } from "./namespace.ts";

/** Settings with which the chart runs the images of this commit. */
export const LOCAL_IMAGES = ["image.registry=gateway", "image.tag=local"];
const SERVICES = ["edge", "chatWorker", "mediaWorker", "keyAdmin", "simulator"];

/** Settings with which all of it, and what is named, fits on a small machine. */
export const smallRequests = (...more: string[]): string[] =>
  [...SERVICES, ...more].map((service) =>
    `${service}.resources.requests.cpu=100m`
  );

/** A release, and where its API is. */
export interface Served {
  readonly namespace: Namespace;
  readonly target: Target;
}

/** What the command says while policies do not know a new pod yet. */
const NOT_YET = /Cannot reach redis/;

/** Creates the first key as NOTES.txt says. Returns where its requests go. */
export async function firstKey(namespace: Namespace): Promise<Target> {
  const service = `service/${RELEASE}-edge-auth`;
  const address = await namespace.field(service, "{.spec.clusterIP}");
  const exec = ["exec", `deployment/${RELEASE}-key-admin`, "--"];
  const create = ["gateway", "keys", "create", "--description", "first key"];
  let json = "";
  await namespace.wait("the first key", async () => {
    try {
      json = await namespace.kubectl(...exec, ...create, "--json");
      return true;
    } catch (error) {
      if (NOT_YET.test(String(error))) return false;
      throw error;
    }
  });
  const { key } = JSON.parse(json);
  assert.match(key, /^sk-/);
  return { url: `http://${address}/v1`, key };
}

/** A list of models, all of which the simulator runs. */
export const listOf = (...ids: string[]): string =>
  JSON.stringify({
    models: ids.map((id) => ({
      id,
      backends: [{
        type: "openai",
        name: "simulator",
        base_url: `http://${RELEASE}-model-simulator:8090/v1`,
        model: MODEL,
      }],
    })),
  });

/** Waits for an answer that is whole: meanwhile, only refusals to be tried again. */
export async function waitForAnswer(
  { namespace, target }: Served,
): Promise<void> {
  await namespace.wait("a whole answer", async () => {
    const answer = await chat(target, { stream: true });
    const { status, text, retryAfter } = answer;
    if (isWhole(answer)) return true;
    assert.ok(status === 503 && retryAfter !== null, `${status} ${text}`);
    return false;
  });
}
