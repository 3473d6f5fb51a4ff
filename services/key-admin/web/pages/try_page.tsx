import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { z } from "zod";
import {
  API_REQUEST_ID,
  readAnswer,
  TRY_FACTS,
  type TryAnswer,
} from "../../domain/try/answer.ts";
import { codeOf, LANGUAGES } from "../../domain/try/code.ts";
import { TRY_LIMITS, tryKeyValue } from "../../domain/try/key.ts";
import {
  streamed,
  type TryField,
  tryFields,
  type TryRequest,
  tryRequest,
  type TryValues,
} from "../../domain/try/request.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
} from "../context.ts";
import { choice, readForm, text } from "../forms.ts";
import { showPage } from "../layout.tsx";
import { Copyable, Facts, Field, PostForm } from "../parts.tsx";
import { readCookie } from "../session.ts";

/**
 * Sends a request through an edge, as callers do. It goes through key-admin, so that
 * its key never reaches a browser. With the script, the answer is streamed into the
 * page; without it, the form leads to a page with the whole answer.
 */

/** The form guard bounds the whole form. */
const CHARS_MAX = 32_768;

const TRY_FORM = z.strictObject({
  ...tryFields(() => text(CHARS_MAX)),
  /** Only shows the request as code. */
  show: choice(["code"]).optional(),
});

const openTry: Handler = (c) => {
  const asked = c.req.query("model") ?? "";
  const models = modelsOf(c.var.deps);
  return showTry(c, {
    ...tryFields(() => ""),
    model: models.includes(asked) ? asked : models[0] ?? "",
    message: "Say hello in three languages.",
  });
};

/** Answers with a page: the whole answer, the mistakes of the form, or only its code. */
const showAnswer: Handler = async (c) => {
  const { show, ...values } = readForm(c, TRY_FORM);
  const { request, errors } = tryRequest(values);
  if (errors.size > 0 || show === "code") return showTry(c, values, { errors });
  const startMs = performance.now();
  const answer = await readAnswer(await ask(c, request), startMs);
  return showTry(c, values, { answer });
};

/** Passes the stream of the API on unchanged. Mistakes of the form are answered as by {@link showAnswer}. */
const streamAnswer: Handler = async (c) => {
  const { show: _, ...values } = readForm(c, TRY_FORM);
  const { request, errors } = tryRequest(values);
  if (errors.size > 0) return showTry(c, values, { errors });
  const { body, status, headers } = await ask(c, streamed(request));
  return new Response(body, {
    status,
    headers: {
      "content-type": headers.get("content-type") ?? "",
      [API_REQUEST_ID]: headers.get("x-request-id") ?? "",
    },
  });
};

export const tryRoutes = {
  "/try": { GET: openTry, POST: showAnswer },
  "/try/chat": { POST: streamAnswer },
};

/** Sends the request with the key of this session. It ends when the browser has left. */
async function ask(c: ConsoleContext, request: TryRequest): Promise<Response> {
  const { deps, signedIn: { session } } = c.var;
  const from = { cookie: readCookie(c, "sid"), actor: actorOf(c) };
  const key = await tryKeyValue(deps, session, from);
  return await deps.askApi(request, { key, signal: c.req.raw.signal });
}

const modelsOf = ({ catalog }: ConsoleDeps): string[] =>
  [...catalog.values()].filter(({ kind }) => kind === "chat")
    .map(({ id }) => id);

function showTry(
  c: ConsoleContext,
  values: TryValues,
  { errors = new Map(), answer }: {
    errors?: ReadonlyMap<string, string>;
    answer?: TryAnswer;
  } = {},
): Promise<Response> {
  const { deps } = c.var;
  const code = codeOf(streamed(tryRequest(values).request), deps.apiUrl);
  const buttons = (
    <>
      <button type="button" data-stop="" hidden>Stop</button>
      <button type="submit" name="show" value="code">Show as code</button>
    </>
  );
  return showPage(
    c,
    {
      title: "Try it",
      lead:
        `Sends a real request with a key that only this session has: ${TRY_LIMITS.key.requestsPerMinute} requests per minute. It counts towards your usage and your limits.`,
      error: errors.size === 0 ? null : "Correct the marked fields.",
    },
    <>
      <div class="split try">
        <section class="card">
          <PostForm
            id="try"
            action="/try#answer"
            submit="Send"
            more={buttons}
          >
            <Fields models={modelsOf(deps)} values={values} errors={errors} />
          </PostForm>
        </section>
        <div>
          <Answer answer={answer} />
          <section class="card">
            <div>
              <h2>The same request as code</h2>
              <p class="help">
                With a key of your own in <code>OPENAI_API_KEY</code>.
              </p>
            </div>
            {LANGUAGES.map((language, at) => (
              <details name="code" open={at === 0}>
                <summary>{language}</summary>
                <Copyable id={`code-${language}`} label={language}>
                  {code[language]}
                </Copyable>
              </details>
            ))}
          </section>
        </div>
      </div>
      <script src={deps.assets.tryScript} defer />
    </>,
  );
}

const decimal = (min?: number, max?: number) => ({
  ...{ type: "number", step: "any", placeholder: "Default", min, max },
});
const json = (placeholder: string) => ({
  ...{ rows: 5, spellcheck: false, placeholder },
});
const { temperatureMin, temperatureMax, topPMin, topPMax } = REQUEST_LIMITS;
const THINKING = [["", "Default"], ["on", "On"], ["off", "Off"]];

/** Fields that most requests do without: their names, labels and inputs. */
const GROUPS: [title: string, fields: [TryField, string, object][]][] = [
  ["Parameters", [
    ["temperature", "Temperature", decimal(temperatureMin, temperatureMax)],
    ["top_p", "Top p", decimal(topPMin, topPMax)],
    ["max_tokens", "Max tokens", decimal(1)],
    ["seed", "Seed", decimal()],
    ["thinking", "Thinking", { options: THINKING }],
  ]],
  ["Tools", [[
    "tools",
    "Tools (JSON)",
    json(`[{"type": "function", "function": {
  "name": "get_weather",
  "parameters": {"type": "object", "properties":
    {"city": {"type": "string"}}}}}]`),
  ]]],
  ["Structured answer", [[
    "schema",
    "JSON schema of the answer",
    json(`{"type": "object", "properties":
  {"city": {"type": "string"}},
 "required": ["city"], "additionalProperties": false}`),
  ]]],
  ["Earlier messages", [[
    "history",
    "Earlier messages (JSON)",
    json(`[{"role": "user", "content": "Hello"},
 {"role": "assistant", "content": "Hi!"}]`),
  ]]],
  ["Other fields", [[
    "more",
    "Other fields of the request (JSON)",
    json(`{"stop": ["END"], "tool_choice": "required"}`),
  ]]],
];

/** The request. The script replaces these fields when one has a mistake. */
function Fields({ models, values, errors }: {
  models: readonly string[];
  values: TryValues;
  errors: ReadonlyMap<string, string>;
}) {
  const [focus] = errors.keys();
  const field = (name: TryField, label: string, input: object) => (
    <Field
      id={name}
      label={label}
      value={values[name]}
      error={errors.get(name)}
      autofocus={focus === name}
      autocomplete="off"
      {...input}
    />
  );
  return (
    <div id="fields">
      {field("model", "Model", { options: models.map((id) => [id, id]) })}
      {field("system", "System prompt", { rows: 2 })}
      {field("message", "Message", { rows: 4 })}
      {GROUPS.map(([title, fields]) => (
        <details
          open={fields.some(([name]) =>
            errors.has(name) || values[name] !== ""
          )}
        >
          <summary>{title}</summary>
          <div class="pair">
            {fields.map(([name, label, input]) => field(name, label, input))}
          </div>
        </details>
      ))}
    </div>
  );
}

/** The answer, or the places in which the script shows it. The style sheet hides empty ones. */
const Answer = ({ answer = {} }: { answer: TryAnswer | undefined }) => (
  <section class="card" id={answer.total && "answer"} data-answer="">
    <h2>Answer</h2>
    <p class="faint" role="status" data-part="state">
      {answer.total ? "" : "Nothing sent yet."}
    </p>
    <p class="banner bad" role="alert" data-part="error">{answer.error}</p>
    <details open>
      <summary>Thinking</summary>
      <div class="text faint" data-part="thinking">{answer.thinking}</div>
    </details>
    <div class="text" data-part="content">{answer.content}</div>
    <div>
      <p class="help">Tool calls</p>
      <pre class="text" data-part="calls" tabindex={0}>{answer.calls}</pre>
    </div>
    <Facts
      facts={Object.fromEntries(
        TRY_FACTS.map(([name, label]) => [
          label,
          <span key={name} data-part={name}>{answer[name]}</span>,
        ]),
      )}
    />
    <button type="button" data-part="continue" hidden>
      Continue the conversation
    </button>
  </section>
);
