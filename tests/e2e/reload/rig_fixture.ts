/** A gateway whose list of models changes while it serves. */
import { serveSimulator } from "../../../services/model-simulator/simulator.ts";
import { amountOf } from "../../support/amount.ts";
import { callApi } from "../../support/chat_request.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { simulates } from "../../support/gateway/simulator.ts";
import { makeTempDir } from "../../support/process.ts";
import { until } from "../../support/wait_for.ts";
import { KEY_ENV, listAfter } from "./changing_list_fixture.ts";

const MEDIA_WORKERS = amountOf({ usual: 1, full: 2 });
/** How long a busy machine may take for a change. */
export const PATIENT_MS = 60_000;

/** A gateway of two edges and two workers, whose list and key of a server are files. */
export class Rig implements AsyncDisposable {
  readonly #owned: AsyncDisposableStack;
  readonly gateway: LaunchedGateway;
  /** The list of models, and the key of the servers. */
  readonly files: { readonly models: string; readonly key: string };
  /** The simulators, which have the same models. */
  readonly urls: readonly [string, string];

  /** Starts it with the first list, of two simulators in this process. */
  static async start(): Promise<Rig> {
    await using starting = new AsyncDisposableStack();
    const one = starting.use(serveSimulator());
    const other = starting.use(serveSimulator());
    const urls = [one.url, other.url] as const;
    const { path } = starting.use(await makeTempDir());
    const files = { models: `${path}/models.json`, key: `${path}/key` };
    await Deno.writeTextFile(files.key, "key-0");
    await Deno.writeTextFile(files.models, listAfter(0, urls));
    const gateway = starting.use(
      await startGateway("launched", {
        edges: 2,
        workers: 2,
        mediaWorkers: MEDIA_WORKERS,
        env: { MODELS_FILE: files.models, [`${KEY_ENV}_FILE`]: files.key },
      }),
    );
    return new Rig(starting.move(), { gateway, files, urls });
  }

  private constructor(
    owned: AsyncDisposableStack,
    { gateway, files, urls }: Pick<Rig, "gateway" | "files" | "urls">,
  ) {
    this.#owned = owned;
    this.gateway = gateway;
    this.files = files;
    this.urls = urls;
  }

  /** The first key of the gateway. */
  get key(): string {
    return this.gateway.state.api_key;
  }

  /** Posts to both edges, and returns their statuses with the codes of errors. */
  async ask(path: string, body: object, key = this.key): Promise<string> {
    const answers = [0, 1].map(async (edge) => {
      const url = `${this.gateway.baseUrl(edge)}/${path}`;
      const answer = await callApi(url, key, { body });
      const text = await answer.text();
      const code = answer.ok ? "" : ` ${JSON.parse(text).error.code}`;
      return `${answer.status}${code}`;
    });
    return [...new Set(await Promise.all(answers))].join();
  }

  /** As {@link ask}, of a short chat request. */
  chat(model: string, more: object = {}, key = this.key): Promise<string> {
    const messages = simulates("1 token");
    return this.ask("chat/completions", { model, messages, ...more }, key);
  }

  /** As {@link ask}, of a short speech. */
  speak(model: string): Promise<string> {
    return this.ask("audio/speech", { model, input: "Hello", voice: "a" });
  }

  /** Waits until both edges answer a short chat request with this. */
  becomes(model: string, status: string): Promise<unknown> {
    return until(
      async () => await this.chat(model) === status || undefined,
      PATIENT_MS,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync();
  }
}
