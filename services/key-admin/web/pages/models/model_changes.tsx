/** Forms with which operators override the list of models. */

import { REASON_CHARS_MAX } from "../../../domain/audit/audit_log.ts";
import {
  overrideSchema,
  type OverrideTarget,
  targetOf,
} from "@gateway/shared/backends/overrides";
import { z } from "zod";
import {
  type ModelView,
  modelViews,
  othersInUse,
} from "../../../domain/models/model_views.ts";
import {
  describe,
  type StoredOverride,
} from "../../../domain/models/override_store.ts";
import {
  type ConsoleContext,
  type Handler,
  operatorOf,
  Refused,
  type Routes,
} from "../../context.ts";
import { parseForm, text } from "../../request/forms.ts";
import { Page } from "../../view/layout.tsx";
import { address, Banner, Field, PostForm, Table } from "../../view/parts.tsx";
import { Moment } from "../../view/texts.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";

const CHANGE = "/models/change";
const UNDO = "/models/undo";
const DONE = "/models?done=model_changed";
const UNTOLD = "/models?done=model_untold";
const WEIGHT_CHARS_MAX = 5;

const target = {
  model: text(300),
  what: z.enum(["drain", "weight", "disable"]),
  backend: text(64).default(""),
};
const CHANGE_FORM = z.strictObject({
  ...target,
  weight: text(20).default(""),
  reason: text(REASON_CHARS_MAX).default(""),
});
const UNDO_FORM = z.strictObject(target);

/**
 * Returns the address of the page on which a server, or a model as a whole, is changed.
 */
export const changeAddress = (model: string, backend = ""): string =>
  address(CHANGE, { model, backend });

/** Finds the model and the server that the address names, with their overrides. */
async function find(c: ConsoleContext) {
  const { catalog, workers, overrides } = c.var.deps;
  const [model = "", backend = ""] = [
    c.req.query("model"),
    c.req.query("backend"),
  ];
  const views = modelViews(catalog, workers);
  const view = views.find(({ id }) => id === model);
  const server = view?.servers.find((each) => each.backend === backend);
  if (view === undefined || (backend !== "" && server === undefined)) {
    throw new Refused(404, "There is no such model or server", {
      back: "/models",
    });
  }
  const all = await overrides.list();
  const targets = new Set(all.map(targetOf));
  const isHeld = (what: OverrideTarget["what"]) =>
    targets.has(targetOf({ what, model, backend }));
  return { view, server, all, isHeld };
}

const showChange: Handler = async (c) => {
  const { view, server, all, isHeld } = await find(c);
  const title = server === undefined
    ? view.id
    : `${server.backend} of ${view.id}`;
  return (
    <Page
      c={c}
      title={title}
      lead="A change holds at once, beside the list of models, until you undo it."
      actions={<a class="button" href="/models">All models</a>}
    >
      {server === undefined
        ? <DisableForm view={view} isDisabled={isHeld("disable")} />
        : (
          <>
            <section class="card">
              <h2>Take out of use</h2>
              {isHeld("drain")
                ? <Undo override={{ what: "drain", ...server }} />
                : <DrainForm view={view} server={server} all={all} />}
            </section>
            <section class="card">
              <h2>Weight</h2>
              <ChangeForm what="weight" server={server} submit="Set weight">
                <Field
                  id="weight"
                  label="Share of requests among servers of the same preference"
                  value={String(server.weight)}
                  required
                  inputmode="numeric"
                  maxlength={WEIGHT_CHARS_MAX}
                />
              </ChangeForm>
              {isHeld("weight") && (
                <Undo override={{ what: "weight", ...server }} />
              )}
            </section>
          </>
        )}
    </Page>
  );
};

type Server = { model: string; backend: string };

function DrainForm(
  { view, server, all }: {
    view: ModelView;
    server: Server;
    all: readonly StoredOverride[];
  },
) {
  const isLast = othersInUse(view, server.backend, all).length === 0;
  return (
    <>
      {isLast && (
        <Banner look="warn">
          This is the last server of {view.id}{" "}
          that is in use: every request for the model gets 503 until you take
          one back.
        </Banner>
      )}
      <ChangeForm
        what="drain"
        server={server}
        submit="Drain"
        look="primary bad"
      >
        <p class="lead">
          The server gets no new requests. Those that run there end as usual.
        </p>
      </ChangeForm>
    </>
  );
}

const DisableForm = (
  { view, isDisabled }: { view: ModelView; isDisabled: boolean },
) => (
  <section class="card">
    <h2>Disable the model</h2>
    {isDisabled
      ? <Undo override={{ what: "disable", model: view.id }} />
      : (
        <ChangeForm
          what="disable"
          server={{ model: view.id, backend: "" }}
          submit="Disable"
          look="primary bad"
        >
          <p class="lead">
            New requests for it get 404, by all of its names, and it is in no
            list of models. Those that run end as usual.
          </p>
        </ChangeForm>
      )}
  </section>
);

const ChangeForm = ({ what, server, children, ...form }: {
  what: OverrideTarget["what"];
  server: Server;
  submit: string;
  look?: string;
  children: unknown;
}) => (
  <PostForm
    {...form}
    action={CHANGE}
    hidden={{ what, model: server.model, backend: server.backend }}
  >
    {children as string}
    <Field
      id={`reason-${what}`}
      name="reason"
      label="Why (optional)"
      value=""
      maxlength={REASON_CHARS_MAX}
    />
  </PostForm>
);

/** One click undoes an override. */
const Undo = ({ override }: { override: OverrideTarget }) => (
  <PostForm
    action={UNDO}
    hidden={{
      what: override.what,
      model: override.model,
      backend: override.backend ?? "",
    }}
    submit={UNDO_LABELS[override.what]}
    look="small"
  />
);

const UNDO_LABELS = {
  drain: "Take back",
  weight: "Undo weight",
  disable: "Enable",
} as const;

/** The overrides, each with a button that undoes it. */
export const OverrideTable = ({ overrides, views, nowMs }: {
  overrides: readonly StoredOverride[];
  views: readonly ModelView[];
  nowMs: number;
}) =>
  overrides.length === 0 ? null : (
    <Table
      caption="Changed beside the list of models"
      title={<h2>Changed beside the list of models</h2>}
      rows={overrides}
      columns={[
        ["What", (each) => (
          <>
            <bdi>{describe(each)}</bdi>
            {!isKnown(each, views) && (
              <p class="help">No longer in the list: it changes nothing.</p>
            )}
          </>
        )],
        ["Since", ({ atMs }) => <Moment ms={atMs} nowMs={nowMs} />],
        ["By", ({ by }) => by],
        ["Why", ({ reason }) => <bdi>{reason || "–"}</bdi>],
        ["Undo", (each) => <Undo override={each} />],
      ]}
    />
  );

function isKnown(
  { model, ...override }: StoredOverride,
  views: readonly ModelView[],
): boolean {
  const view = views.find(({ id }) => id === model);
  return override.what === "disable"
    ? view !== undefined
    : view?.servers.some(({ backend }) => backend === override.backend) ??
      false;
}

const change: Handler = async (c) => {
  const { what, model, backend, weight, reason } = parseForm(c, CHANGE_FORM);
  const { catalog, workers, overrides } = c.var.deps;
  const isDigits = /^\d{1,5}$/.test(weight);
  const result = overrideSchema.safeParse({
    what,
    model,
    backend,
    ...isDigits && { weight: Number(weight) },
  });
  const back = changeAddress(model, backend);
  if (!result.success) {
    throw new Refused(400, what === "weight" ? BAD_WEIGHT : NO_SERVER, {
      back,
    });
  }
  const views = modelViews(catalog, workers);
  const note = { by: "", atMs: 0, reason: "" };
  if (!isKnown({ ...result.data, ...note }, views)) {
    throw new Refused(404, NO_SERVER, { back: "/models" });
  }
  await overrides.set(result.data, operatorOf(c), reason.trim());
  return await tell(c);
};
const BAD_WEIGHT =
  "A weight is a whole number from 1 to 10000. To send a server nothing, drain it";
const NO_SERVER = "There is no such model or server";

const undo: Handler = async (c) => {
  await c.var.deps.overrides.remove(parseForm(c, UNDO_FORM), operatorOf(c));
  return await tell(c);
};

const tell = async (c: ConsoleContext) =>
  c.redirect(await c.var.deps.tellOverrides() ? DONE : UNTOLD, 303);

/** Ask for a change of a model or a server, make it, and undo it. */
export const modelChangeRoutes: Routes = {
  [CHANGE]: { GET: showChange, POST: behindPassword(change) },
  [UNDO]: { POST: behindPassword(undo) },
};
