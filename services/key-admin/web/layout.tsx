import { html } from "hono/html";
import type { Child } from "hono/jsx";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { detectDurability } from "../domain/store/durability.ts";
import type { ConsoleContext, ConsoleDeps } from "./context.ts";
import { Banner, FormToken, Icon, PostForm } from "./parts.tsx";
import type { Assets } from "./server.ts";

/** The layout around every page. */

/** Notices after a change. The address carries their name, never their text. */
const NOTICES: Readonly<Record<string, string>> = {
  enabled: "The key is enabled.",
  disabled: "The key is disabled. Requests with it are refused from now on.",
  disabled_stopped:
    "The key is disabled, and its running requests are being stopped.",
  deleted: "The key is deleted.",
  deleted_stopped:
    "The key is deleted, and its running requests are being stopped.",
  edited: "Your changes are saved.",
  password: "Your password is changed.",
  factor_off: "Two-step sign-in is off.",
  failed_tries:
    "Somebody failed to sign in to your account several times before you did. The audit log says when and from where.",
  session_ended: "The session is ended.",
};

const NOT_DURABLE =
  "Redis may lose changes in a power failure. Ask your operator to set appendonly yes and appendfsync always, or to use Redis 8 or later.";
const NOT_STOPPED =
  "The key is changed, but its running requests could not be stopped because NATS did not answer. They end on their own.";
const SIMULATED =
  "No model server is configured: the model simulator answers every request with canned text.";

interface DocumentProps {
  title: string;
  assets: Assets;
  children: Child;
}

function Document({ title, assets, children }: DocumentProps) {
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
      <body>{children}</body>
    </html>
  );
  return html`<!DOCTYPE html>${page}`;
}

const SECTIONS = [
  ["keys", "API keys", "key"],
  ["usage", "Usage", "chart"],
  ["audit", "Audit log", "list"],
  ["account", "Account", "person"],
] as const;

/** Answers with a page behind the sign-in: navigation, notices, content. */
export async function showPage(
  c: ConsoleContext,
  deps: ConsoleDeps,
  { title, section, status = 200 }: {
    title: string;
    section: typeof SECTIONS[number][0];
    status?: ContentfulStatusCode;
  },
  content: Child,
): Promise<Response> {
  const { account, session } = c.get("signedIn");
  const done = c.req.query("done") ?? "";
  const warnings = [
    ...done === "not_stopped" ? [NOT_STOPPED] : [],
    ...await detectDurability(deps.redis) === "none" ? [NOT_DURABLE] : [],
    ...deps.isSimulated ? [SIMULATED] : [],
  ];
  const notice = Object.hasOwn(NOTICES, done) ? NOTICES[done] : undefined;
  return c.html(
    <PageLayout
      title={title}
      section={section}
      assets={deps.assets}
      email={account.email}
      formToken={session.formToken}
    >
      {warnings.map((warning) => (
        <Banner look="warn" icon="warn" role="alert">{warning}</Banner>
      ))}
      {notice && (
        <Banner look="good" icon="check" role="status">{notice}</Banner>
      )}
      {content}
    </PageLayout>,
    status,
  );
}

function PageLayout(
  { title, section, assets, email, formToken, children }: DocumentProps & {
    section: string;
    email: string;
    formToken: string;
  },
) {
  return (
    <Document title={title} assets={assets}>
      <FormToken.Provider value={formToken}>
        <a class="skip" href="#content">Skip to the content</a>
        <div class="shell">
          <header class="side">
            <Brand />
            <nav aria-label="Main">
              {SECTIONS.map(([name, label, icon]) => (
                <a
                  href={`/${name}`}
                  aria-current={name === section ? "page" : undefined}
                >
                  <Icon name={icon} />
                  {label}
                </a>
              ))}
            </nav>
            <div class="who">
              <span title={email}>{email}</span>
              <PostForm action="/sign-out">
                <button class="quiet" type="submit">
                  <Icon name="leave" /> Sign out
                </button>
              </PostForm>
            </div>
          </header>
          <main id="content" tabindex={-1}>{children}</main>
        </div>
      </FormToken.Provider>
    </Document>
  );
}

const Brand = () => (
  <a class="brand" href="/keys">
    <Icon name="mark" />
    <span>Gateway</span>
  </a>
);

/** A narrow, centred page: sign-in, set-up, refusals. */
export function Card(
  { title, assets, lead, children }: DocumentProps & { lead?: string },
) {
  return (
    <Document title={title} assets={assets}>
      <main id="content" class="alone">
        <Brand />
        <section class="card">
          <h1>{title}</h1>
          {lead && <p class="lead">{lead}</p>}
          {children}
        </section>
      </main>
    </Document>
  );
}
