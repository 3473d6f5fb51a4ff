/**
 * Sends a request through an edge, as callers do. It goes through key-admin, so that
 * its key never reaches a browser. The form leads to a page with the whole answer; the
 * script puts that answer into this page, and streams chats.
 */

import type { Named } from "@gateway/shared/models/aliases";
import { z } from "zod";
import {
  type Medium,
  readAnswer,
  TRY_FACTS,
  type TryAnswer,
} from "../../../domain/try/answer.ts";
import { codeOf } from "../../../domain/try/code.ts";
import { TRY_LIMITS } from "../../../domain/try/key.ts";
import {
  TRY_KINDS,
  type TryField,
  type TryKind,
  type TryValues,
} from "../../../domain/try/kinds.ts";
import {
  endpointOf,
  isTryKind,
  tryFields,
  tryRequest,
} from "../../../domain/try/request.ts";
import {
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { askAnswer, askKept, askVideo, passOn, send } from "./try_calls.ts";
import { TryCode } from "./try_code.tsx";
import { parseForm, text } from "../../request/forms.ts";
import { securityPolicy } from "../../guards.ts";
import { ownScopeOf } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { address, Facts, Field, PostForm, Tabs } from "../../view/parts.tsx";
import { labelOf, namesText } from "../../view/texts.tsx";

/** The form guard bounds the whole form. */
const CHARS_MAX = 32_768;

/** Sources from which the pages of a kind load more than others. */
const POLICIES: { readonly [kind in TryKind]?: Record<string, string> } = {
  image: { "img-src": "'self' data:" },
  speech: { "media-src": "data:" },
  video: { "media-src": "'self'" },
};

/** The kinds of the models that are offered, with these models. */
function offered({ catalog }: ConsoleDeps): ReadonlyMap<TryKind, Named[]> {
  const kinds = new Map<TryKind, Named[]>();
  for (const model of catalog.values()) {
    const { kind } = model;
    if (!isTryKind(kind)) continue;
    const models = kinds.get(kind) ?? [];
    models.push(model);
    kinds.set(kind, models);
  }
  return kinds;
}

/**
 * Returns the kind in the address, that of its model, or the first one; and the model
 * in the address, or the first one of that kind.
 */
function askedFor(c: ConsoleContext) {
  const kinds = [...offered(c.var.deps)];
  const { kind: kindName = "", model = "" } = c.req.query();
  const [kind, models] = kinds.find(([kind]) => kind === kindName) ??
    kinds.find(([, models]) => models.some(({ id }) => id === model)) ??
    kinds[0] ?? [];
  if (kind === undefined) throw new Refused(404, "There is no model to try");
  const option = models?.find(({ id }) => id === model) ?? models?.[0];
  return { kind, model: option?.id };
}

const openTry: Handler = (c) => {
  const { kind, model = "" } = askedFor(c);
  const values = { model, ...TRY_KINDS[kind].example };
  return showTry(c, { kind, values });
};

/** The posted form, its request and its mistakes. */
function readTry(c: ConsoleContext) {
  const { kind } = askedFor(c);
  const { show, once, ...values } = parseForm(
    c,
    z.strictObject({
      ...tryFields(kind, text(CHARS_MAX)),
      /** Only shows the request as code. */
      show: z.literal("code").optional(),
      /** Names a chat that the page may send again, once it was reloaded. */
      once: z.string().regex(/^[0-9a-f]{32}$/).optional(),
    }),
  );
  return { kind, show, once, values, ...tryRequest(kind, values) };
}

/**
 * Answers with a page: the whole answer, the progress of the video in the path, the
 * mistakes of the form, or only its code.
 */
const showAnswer: Handler = async (c) => {
  const { kind, show, values, request, errors } = readTry(c);
  const isRefresh = c.req.param("id") !== undefined;
  if (!isRefresh && (errors.size > 0 || show)) {
    return showTry(c, { kind, values, errors });
  }
  const startMs = performance.now();
  const { path } = endpointOf(kind, values);
  const response = await (isRefresh ? askVideo(c) : send(c, path, request));
  const answer = await readAnswer(response, startMs);
  const { root } = ownScopeOf(c);
  const again = isRefresh && !response.ok
    ? c.req.path
    : answer.again && root + answer.again;
  const media = answer.media.map(([url, file]): Medium => [
    url.startsWith("/") ? root + url : url,
    file,
  ]);
  return showTry(c, { kind, values, answer: { ...answer, again, media } });
};

/**
 * Passes on the answer of the API unchanged. Mistakes of the form, and endpoints whose
 * answers are not streamed here, are answered as by {@link showAnswer}.
 */
const streamAnswer: Handler = async (c) => {
  const { kind, values, once, request, errors } = readTry(c);
  if (errors.size > 0) return showTry(c, { kind, values, errors });
  const { path, streamed } = endpointOf(kind, values);
  if (streamed === undefined) return await showAnswer(c);
  const body = { ...request, ...streamed };
  return passOn(await askKept(c, { path, request: body, once }));
};

/** Sends a kept answer again, from its beginning on and as it grows. */
const readKept: Handler = async (c) => passOn(await askAnswer(c));

/** Ends the run of a kept answer, of which nothing is left. */
const stopKept: Handler = async (c) => {
  parseForm(c, z.strictObject({}));
  return passOn(await askAnswer(c, { isRemoval: true }));
};

/** Passes on the file of the video in the path, or the part that a player asks for. */
const sendVideo: Handler = async (c) => {
  const answer = await askVideo(c, "/content");
  const isHead = c.req.method === "HEAD";
  if (isHead) await answer.body?.cancel();
  const response = passOn(isHead ? new Response(null, answer) : answer);
  // A file, because nothing that a model server sends may be a page of the console.
  const saved = 'attachment; filename="video.mp4"';
  response.headers.set("content-disposition", saved);
  return response;
};

/** The routes of "Try it": pages, streams, kept answers, and the files of videos. */
export const tryRoutes = (root: string): Routes => ({
  [`${root}/try`]: { GET: openTry, POST: showAnswer },
  [`${root}/try/stream`]: { POST: streamAnswer },
  [`${root}/try/answers/:id`]: { GET: readKept },
  [`${root}/try/answers/:id/stop`]: { POST: stopKept },
  [`${root}/try/videos/:id`]: { POST: showAnswer },
  [`${root}/try/videos/:id/content`]: { GET: sendVideo },
});

/** The content of the page. */
interface ShownTry {
  kind: TryKind;
  /** The values of the fields. */
  values: TryValues;
  /** Mistakes by field. */
  errors?: ReadonlyMap<string, string>;
  answer?: TryAnswer;
}

/** The page with a form and, once it was sent, with its mistakes or the answer. */
function showTry(
  c: ConsoleContext,
  { kind, values, errors, answer }: ShownTry,
) {
  const { deps } = c.var;
  const { root, membership } = ownScopeOf(c);
  const whose = membership === null
    ? "your usage and your limits"
    : "the usage and the limits of the project";
  const { isUpload } = TRY_KINDS[kind];
  const { name: endpoint, streamed } = endpointOf(kind, values);
  const request = { ...tryRequest(kind, values).request, ...streamed };
  const kinds = offered(deps);
  return (
    <Page
      c={c}
      title="Try it"
      lead={`Sends real requests, up to ${TRY_LIMITS.key.requestsPerMinute} per minute, with a key that only this session has. They count towards ${whose}.`}
      error={errors?.size ? "Correct the marked fields." : null}
      headers={{ "content-security-policy": securityPolicy(POLICIES[kind]) }}
    >
      {kinds.size > 1 && (
        <Tabs
          label="Kind of model"
          tabs={[...kinds.keys()].map((kind) => [kind, labelOf(kind)])}
          current={kind}
          to={(kind) => address(`${root}/try`, { kind })}
        />
      )}
      <div class="split try">
        <section class="card">
          <PostForm
            id="try"
            action={address(`${root}/try`, { kind }) + "#answer"}
            enctype={isUpload ? "multipart/form-data" : undefined}
            submit="Send"
            more={
              <>
                <button type="button" data-stop="" hidden>Stop</button>
                <button type="submit" name="show" value="code">
                  Show as code
                </button>
              </>
            }
          >
            <Fields
              kind={kind}
              models={kinds.get(kind) ?? []}
              values={values}
              errors={errors ?? new Map()}
            />
          </PostForm>
        </section>
        <div>
          <Answer
            kind={kind}
            answer={answer}
            subject={values.prompt ?? ""}
            reader={c.var.signedIn.session.ownerId}
          />
          <TryCode code={codeOf(endpoint, request, deps.apiUrl)} />
        </div>
      </div>
      <script type="module" src={deps.assets.tryScript} />
    </Page>
  );
}

/**
 * The fields of a kind, of which seldom used ones are folded. The script replaces them
 * when one has a mistake.
 */
function Fields({ kind, models, values, errors }: {
  kind: TryKind;
  models: readonly Named[];
  values: TryValues;
  errors: ReadonlyMap<string, string>;
}) {
  const field = ({ name, label, input }: TryField) => (
    <Field
      id={name}
      label={label}
      value={values[name]}
      error={errors.get(name)}
      autocomplete="off"
      {...input}
    />
  );
  const isUsed = ({ name }: TryField) => errors.has(name) || values[name];
  return (
    <div id="fields">
      {field({
        name: "model",
        label: "Model",
        input: {
          options: models.map((model) => [model.id, namesText(model)]),
        },
      })}
      {TRY_KINDS[kind].fields.map(({ title, fields }) => {
        const row = <div class="pair">{fields.map(field)}</div>;
        return title === undefined ? row : (
          <details open={fields.some(isUsed)}>
            <summary>{title}</summary>
            {row}
          </details>
        );
      })}
    </div>
  );
}

/**
 * The answer, or the empty elements in which the script shows it. The style sheet hides
 * those.
 */
function Answer({ kind, answer, subject, reader }: {
  kind: TryKind;
  answer: TryAnswer | undefined;
  /** What the images show, as their alternative text says. */
  subject: string;
  /** The id of who reads it: nobody else gets it when the tab is reloaded. */
  reader: string;
}) {
  const { texts = {}, media = [], again } = answer ?? {};
  const facts = Object.entries({ ...TRY_KINDS[kind].facts, ...TRY_FACTS });
  return (
    <section class="card" id={answer && "answer"} data-answer={reader}>
      <h2>Answer</h2>
      <p class="faint" role="status" data-part="state">
        {answer ? texts.state : "Nothing sent yet."}
      </p>
      <p class="banner bad" role="alert" data-part="error">{texts.error}</p>
      <details open>
        <summary>Thinking</summary>
        <div class="text faint" data-part="thinking">{texts.thinking}</div>
      </details>
      <div class="text" data-part="content">{texts.content}</div>
      <div data-part="media">
        {media.map(([url, file]) => (
          <figure>
            {kind === "image" && <img src={url} alt={subject} />}
            {kind === "speech" && <audio src={url} controls />}
            {kind === "video" && <video src={url} controls />}
            <a class="button small" href={url} download={file}>Download</a>
          </figure>
        ))}
      </div>
      <div data-part="again">
        {again !== undefined && (
          <button
            type="submit"
            form="try"
            formaction={address(again, { kind }) + "#answer"}
          >
            Refresh
          </button>
        )}
      </div>
      <div>
        <p class="help">Tool calls</p>
        <pre class="text" data-part="calls" tabindex={0}>{texts.calls}</pre>
      </div>
      <Facts
        facts={Object.fromEntries(
          facts.map(([name, label]) => [
            label,
            <span key={name} data-part={name}>{texts[name]}</span>,
          ]),
        )}
      />
      <button type="button" data-continue="" hidden>
        Continue the conversation
      </button>
    </section>
  );
}
