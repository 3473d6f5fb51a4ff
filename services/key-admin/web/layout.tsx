import { html } from "hono/html";
import type { Child } from "hono/jsx";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { detectDurability } from "../domain/store/durability.ts";
import type { ConsoleContext, SignedIn } from "./context.ts";
import { Banner, FormToken, PostForm, Tabs } from "./parts.tsx";

/** The layout around every page. */

/** Notices after a change. The URL contains their name, never their text. */
const NOTICES: Readonly<Record<string, string>> = {
  enabled: "The key is enabled.",
  disabled: "The key is disabled. Requests with it are refused from now on.",
  deleted: "The key is deleted.",
  stopping:
    "The key no longer works, and its running requests are being stopped.",
  edited: "Your changes are saved.",
  password: "Your password is changed.",
  factor_off: "Two-step sign-in is off.",
  failed_tries:
    "Several attempts to sign in to your account failed before this one. The audit log shows when and from where.",
  session_ended: "The session has ended.",
};

const NOT_DURABLE =
  "Redis may lose changes in a power failure. Ask your operator to set appendonly yes and appendfsync always, or to use Redis 8 or later.";
const NOT_STOPPED =
  "The key was changed, but its running requests could not be stopped because NATS did not answer. They end on their own.";
const SIMULATED =
  "No model server is configured: the model simulator answers every request with canned text.";

/** The pages in the navigation. Their names begin the paths of all pages of a section. */
const SECTIONS = [
  ["keys", "API keys"],
  ["usage", "Usage"],
  ["audit", "Audit log"],
  ["account", "Account"],
] as const;

interface Page {
  title: string;
  lead?: Child;
  /** Why a form was refused; the status is then 400 unless given. */
  error?: string | null | undefined;
  status?: ContentfulStatusCode;
  headers?: Readonly<Record<string, string>>;
}

interface ConsolePage extends Page {
  /** Links and buttons beside the title. */
  actions?: Child;
  /** A page with one task is a card. */
  isCard?: boolean;
}

/** Answers with a page for signed-in owners: navigation, notices, content. */
export async function showPage(
  c: ConsoleContext,
  { actions, isCard = false, ...page }: ConsolePage,
  content: Child,
): Promise<Response> {
  const { deps } = c.var;
  const done = c.req.query("done") ?? "";
  const warnings = [
    done === "not_stopped" && NOT_STOPPED,
    await detectDurability(deps.redis) === "none" && NOT_DURABLE,
    deps.isSimulated && SIMULATED,
  ];
  const body = (
    <>
      <Heading {...page} actions={actions} />
      {content}
    </>
  );
  return showDocument(
    c,
    page,
    <>
      <a class="skip" href="#content">Skip to content</a>
      <header class="top row">
        <Brand icon={deps.assets.icon} />
        <Tabs
          label="Main"
          tabs={SECTIONS}
          current={c.req.path.split("/")[1]}
          to={(name) => `/${name}`}
        />
        <PostForm action="/sign-out" submit="Sign out" look="small" />
      </header>
      <main id="content" tabindex={-1}>
        {warnings.map((text) =>
          text && <Banner key={text} look="warn">{text}</Banner>
        )}
        {Object.hasOwn(NOTICES, done) && (
          <Banner look="good">{NOTICES[done]}</Banner>
        )}
        {isCard ? <section class="card narrow">{body}</section> : body}
      </main>
    </>,
  );
}

/** Answers with a page of one card: sign-in, set-up, refusals. */
export const showCard = (
  c: ConsoleContext,
  page: Page,
  content: Child,
): Response | Promise<Response> =>
  showDocument(
    c,
    page,
    <main id="content" class="alone">
      <Brand icon={c.var.deps.assets.icon} />
      <section class="card">
        <Heading {...page} />
        {content}
      </section>
    </main>,
  );

const Brand = ({ icon }: { icon: string }) => (
  <a class="brand row" href="/keys">
    <img src={icon} alt="" width="28" height="28" /> Gateway
  </a>
);

const Heading = (
  { title, lead, error, actions }: Page & { actions?: Child },
) => (
  <>
    <div class="row between">
      <div>
        <h1>
          <bdi>{title}</bdi>
        </h1>
        {lead && <div class="lead">{lead}</div>}
      </div>
      {actions}
    </div>
    {error && <Banner look="bad">{error}</Banner>}
  </>
);

function showDocument(
  c: ConsoleContext,
  { title, error, status = error ? 400 : 200, headers = {} }: Page,
  content: Child,
): Response | Promise<Response> {
  const { assets } = c.var.deps;
  const signedIn: SignedIn | undefined = c.get("signedIn");
  const page = (
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <meta name="robots" content="noindex" />
        <title>{`${title} · Gateway`}</title>
        <link rel="icon" href={assets.icon} type="image/svg+xml" />
        <link rel="stylesheet" href={assets.stylesheet} />
        <script src={assets.script} defer />
      </head>
      <body>
        <FormToken.Provider value={signedIn?.session.formToken ?? ""}>
          {content}
        </FormToken.Provider>
      </body>
    </html>
  );
  return c.html(html`<!DOCTYPE html>${page}`, status, headers);
}
