/** Model servers whose lists of models change, and what a gateway makes of them. */
import assert from "node:assert/strict";
import { callApi } from "../../support/chat_request.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import {
  chatReply,
  jsonResponse,
} from "../../support/model_servers/model_answers.ts";
import {
  startScriptedServer,
  type WholeRequest,
} from "../../support/model_servers/scripted_server.ts";

/** What a listing server answers to a request for embeddings. */
export const VECTORS =
  '{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":3}}';
const NOT_FOUND = '{"error":"there is nothing here"}';
const FAULT = '{"error":"as the message asks"}';
/** How long a busy machine may take for a change. */
export const PATIENT_MS = 30_000;
const messages = [{ role: "user", content: "Hi" }];
const sayHello = chatReply({ words: ["Hello"] });

/** A model server whose list tests change. */
export interface ListingServer extends AsyncDisposable {
  readonly baseUrl: string;
  /** All requests but those for the list. */
  requests(): WholeRequest[];
  /** The models that these requests name. */
  modelsOfRequests(): string[];
  /** Lists exactly these models from now on. */
  lists(names: readonly string[]): void;
  /** Answers with this text in place of the list. */
  says(text: string): void;
}

/**
 * Starts a server with these models, until its list is changed. It answers 500 to a
 * message with "error 500", as the simulator does.
 */
export function startListingServer(models: string[]): ListingServer {
  /** In place of the list. */
  let nonsense: string | null = null;
  const reply = (request: WholeRequest) => {
    const { path, body } = request;
    if (path === "/v1/models") {
      const data = models.map((id) => ({ id, object: "model" }));
      return jsonResponse(nonsense ?? { object: "list", data });
    }
    if (!models.includes(modelOf(request))) {
      return jsonResponse(NOT_FOUND, { status: 404 });
    }
    if (body.includes("error 500")) return jsonResponse(FAULT, { status: 500 });
    return path === "/v1/embeddings"
      ? jsonResponse(VECTORS)
      : sayHello(request);
  };
  const server = startScriptedServer({ reply });
  const requests = () => server.requests.filter(({ body }) => body !== "");
  return {
    baseUrl: server.baseUrl,
    requests,
    modelsOfRequests: () => requests().map(modelOf),
    lists: (names) => void models.splice(0, models.length, ...names),
    says(text) {
      nonsense = text;
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const modelOf = ({ body }: WholeRequest): string =>
  JSON.parse(body || "{}").model;

/** Returns the ids of `GET /v1/models`, as an edge lists them for a key. */
export async function idsOf(
  gateway: LaunchedGateway,
  key: string,
  edge = 0,
): Promise<string[]> {
  const answer = await callApi(`${gateway.baseUrl(edge)}/models`, key);
  const { data } = await answer.json();
  return data.map(({ id }: { id: string }) => id);
}

/** Chats with a model. Returns `200`, or the status with the code of the error. */
export async function statusOf(
  gateway: LaunchedGateway,
  key: string,
  model: string,
): Promise<string> {
  const url = `${gateway.baseUrl()}/chat/completions`;
  const answer = await callApi(url, key, { body: { model, messages } });
  const { error, ...rest } = await answer.json();
  if (answer.status === 200) assert.equal(rest.model, model);
  return `${answer.status} ${error?.code ?? ""}`.trim();
}
