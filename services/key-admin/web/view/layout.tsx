/** The frame of every page: navigation, notices, warnings. */

import { VERSION } from "@gateway/shared/version";
import type { Child } from "hono/jsx";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { detectDurability } from "../../domain/store/durability.ts";
import type { ConsoleContext, SignedIn } from "../context.ts";
import type { Membership } from "../../domain/projects/project_record.ts";
import type { Account } from "../../domain/owners/owner_store.ts";
import { address, Banner, PostForm, Tabs } from "./parts.tsx";
import { Time } from "./texts.tsx";

/** Notices after a change. The URL contains the name, never the text. */
const NOTICES: Readonly<Record<string, string>> = {
  enabled: "The key is enabled.",
  disabled: "The key is disabled. Requests with it are refused from now on.",
  keys_disabled:
    "The selected keys are disabled. Requests with them are refused from now on.",
  deleted: "The key is deleted.",
  stopping:
    "The key no longer works, and its running requests are being stopped.",
  request_stopped: "The request is stopped. The key still works.",
  edited: "Your changes are saved.",
  defaults: "The defaults are saved. New keys begin with them.",
  password: "Your password is changed.",
  reset:
    "Your new password is saved. To sign in, enter it with a code from your authenticator app.",
  factor_off: "Two-step sign-in is off.",
  failed_tries:
    "Several attempts to sign in to your account failed before this one. The audit log shows when and from where.",
  model_changed: "Done. Edges and workers know of the change.",
  model_untold:
    "The change is saved, but NATS did not answer: edges and workers hear of it within seconds after NATS is back.",
  session_ended: "The session has ended.",
  owner_stopping:
    "The owner is disabled, and running requests are being stopped. Both audit logs have the change.",
  owner_changed: "Done. The change is in the owner's audit log and in yours.",
  member_changed: "Done. The change holds from the next request on.",
  member_left: "You are no longer a member of the project.",
  admin_key_deleted:
    "The admin key is deleted. The program that used it is refused from now on.",
  project_renamed: "The project has a new name.",
  project_changed:
    "Done. The change is in the project's audit log and in yours.",
};

const NOT_DURABLE =
  "Redis may lose changes in a power failure. Ask your operator to set appendonly yes and appendfsync always.";
const NOT_STOPPED =
  "The change was made, but NATS or Redis did not answer: running requests end within 11 seconds instead of one.";
const PROJECT_DISABLED =
  "An operator has disabled this project: every request with one of its keys is refused.";
const SIMULATED =
  "No model server is configured: the model simulator answers every request with canned text.";

/**
 * The pages in the navigation. Their names begin the paths of all pages of a section.
 * The last ones are for operators.
 */
const SECTIONS = [
  ["keys", "API keys"],
  ["try", "Try it"],
  ["usage", "Usage"],
  ["requests", "Requests"],
  ["audit", "Audit log"],
  ["reference", "Reference"],
  ["account", "Account"],
  ["people", "People"],
  ["models", "Models"],
] as const;
const SECTIONS_FOR_OPERATORS = 2;
/** The pages that a project has, too; members have one more. */
const OF_ACCOUNTS: readonly string[] = [
  "keys",
  "try",
  "usage",
  "requests",
  "audit",
];
const MEMBERS = ["members", "Members"] as const;

/** The sections that somebody sees, on pages of a project with that of its members. */
function sectionsOf({ account, membership }: SignedIn) {
  const all = account.isOperator
    ? SECTIONS
    : SECTIONS.slice(0, -SECTIONS_FOR_OPERATORS);
  if (membership === null) return all;
  const at = all.findIndex(([name]) => !OF_ACCOUNTS.includes(name));
  return [...all.slice(0, at), MEMBERS, ...all.slice(at)];
}

/** The projects of the signed-in person, among which the header switches. */
interface Accounts {
  signedIn: SignedIn;
  projects: readonly Membership[];
  mayCreate: boolean;
  /** The section of the page, which the other account shows, too. */
  section: string;
}

/** Leads to the same page of another account; nothing for people without a second. */
function Switcher({ signedIn, projects, mayCreate, section }: Accounts) {
  if (projects.length === 0 && !mayCreate) return null;
  const { account, membership } = signedIn;
  const name = membership?.project.name ?? "Own account";
  const shared = [...OF_ACCOUNTS, "members"].includes(section);
  const own = OF_ACCOUNTS.includes(section) ? section : "keys";
  const link = (id: string, text: string, to: string) => (
    <a
      key={id}
      href={to}
      dir="auto"
      aria-current={id === (membership?.project.id ?? "") ? "true" : undefined}
    >
      {text}
    </a>
  );
  return (
    <details class="switcher">
      <summary class="button small">
        <span class="hidden">Account:</span> <bdi>{name}</bdi>
      </summary>
      <nav class="card" aria-label="Account">
        {link("", `Own account (${account.email})`, `/${own}`)}
        {projects.map(({ project: { id, name } }) =>
          link(id, name, `/projects/${id}/${shared ? section : "keys"}`)
        )}
        <a href="/projects">All projects</a>
      </nav>
    </details>
  );
}

/**
 * Returns the banner for operators while the list of models has mistakes; null if it
 * has none.
 */
function refusedList([first, ...others]: readonly string[]): string | null {
  if (first === undefined) return null;
  const more = others.length === 0 ? "" : ` (and ${others.length} more)`;
  return `The list of models has a mistake, so an older one is in use: ${first}${more}`;
}

interface Props {
  c: ConsoleContext;
  title: string;
  lead?: Child;
  /** Links and buttons beside the title. */
  actions?: Child;
  /** Why a form was refused; the status is then 400 by default. */
  error?: string | null | undefined;
  status?: ContentfulStatusCode;
  headers?: Readonly<Record<string, string>>;
  /** A page with one task. */
  isCard?: boolean;
  children: Child;
}

/**
 * A page, with its status: for signed-in owners with navigation and warnings. From 500
 * on it needs no database.
 */
export async function Page(
  { c, title, lead, actions, error, isCard, children, ...answer }: Props,
) {
  const { status = error ? 400 : 200, headers = {} } = answer;
  const { assets, redis, isSimulated, listMistakes } = c.var.deps;
  const signedIn: SignedIn | undefined = status < 500
    ? c.get("signedIn")
    : undefined;
  const notice = c.req.query("done") ?? "";
  const warnings = signedIn === undefined ? [] : [
    notice === "not_stopped" && NOT_STOPPED,
    await detectDurability(redis) === "none" && NOT_DURABLE,
    isSimulated && SIMULATED,
    signedIn.account.isOperator && refusedList(listMistakes()),
    signedIn.membership?.project.isDisabled && PROJECT_DISABLED,
  ];
  const membership = signedIn?.membership ?? null;
  const projects = signedIn && await listed(c, signedIn);
  const [first = "", id = "", below = ""] = c.req.path.split("/").slice(1);
  const section = membership === null ? first : below;
  const body = (
    <>
      <div class="row between">
        <div>
          <h1 dir="auto">{title}</h1>
          {lead && <div class="lead">{lead}</div>}
        </div>
        {actions}
      </div>
      {error && <Banner look="bad">{error}</Banner>}
      {children}
    </>
  );
  c.status(status);
  for (const [name, value] of Object.entries(headers)) c.header(name, value);
  return (
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
      <body class={!signedIn && isCard ? "alone" : ""}>
        <a class="skip" href="#content">Skip to content</a>
        <header class="top row between">
          <a class="brand row" href="/keys">
            <img src={assets.icon} alt="" width="28" height="28" /> Gateway
          </a>
          {signedIn
            ? (
              <>
                {projects && <Switcher {...projects} section={section} />}
                <Tabs
                  label="Main"
                  tabs={sectionsOf(signedIn)}
                  current={section}
                  to={(name) =>
                    membership && [...OF_ACCOUNTS, "members"].includes(name)
                      ? `/projects/${id}/${name}`
                      : `/${name}`}
                />
                <PostForm action="/sign-out" submit="Sign out" look="small" />
              </>
            )
            : !isCard &&
              <a class="button small" href="/sign-in">Sign in</a>}
        </header>
        <main id="content" tabindex={-1}>
          {warnings.map((text) =>
            text && <Banner key={text} look="warn">{text}</Banner>
          )}
          {Object.hasOwn(NOTICES, notice) && (
            <Banner look="good">{NOTICES[notice]}</Banner>
          )}
          {signedIn && <FactorRemoved {...signedIn.account} />}
          {isCard ? <section class="card narrow">{body}</section> : body}
          {/* Hidden from strangers: the version tells what to attack. */}
          {signedIn && <footer class="help">Gateway {VERSION}</footer>}
        </main>
      </body>
    </html>
  );
}

/** The projects of whoever has signed in, and whether they may create one. */
async function listed(c: ConsoleContext, signedIn: SignedIn) {
  const { projects, projectsCreatedBy } = c.var.deps;
  return {
    signedIn,
    projects: await projects.membershipsOf(signedIn.session.ownerId),
    mayCreate: signedIn.account.isOperator || projectsCreatedBy === "everyone",
  };
}

/** The form that was sent, to be sent again with what the children ask for. */
export const HeldForm = (
  { c, children }: { c: ConsoleContext; children: Child },
) => (
  <PostForm
    action={address(c.req.path, { kind: c.req.query("kind") ?? "" })}
    hidden={[...c.var.form]}
    submit="Continue"
    cancel="/keys"
  >
    {children}
  </PostForm>
);

/** Keeps the form that was sent while its owner signs in at this address. */
export const signInAgain = (c: ConsoleContext, at: string) => (
  <Page c={c} title="Sign in again" error={TOO_LATE} status={401} isCard>
    <HeldForm c={c}>
      <a href={at} target="_blank">Sign in in another tab</a>
    </HeldForm>
  </Page>
);
const TOO_LATE =
  "Your sign-in has expired. Sign in again in another tab, then continue here: this page keeps what you entered.";

/**
 * Tells the owner that an operator removed the second factor, until it is dismissed.
 */
const FactorRemoved = ({ factorRemoved }: Account) =>
  factorRemoved && (
    <section class="banner warn between" aria-label="Notice">
      <p>
        An operator ({factorRemoved.by}) removed your second factor on{" "}
        <Time ms={factorRemoved.atMs} as="minute" />. Since then, your password
        alone has been enough to sign in.{" "}
        <a href="/account/second-factor">Set up two-step sign-in</a>
      </p>
      <PostForm action="/account/notice" submit="Dismiss" look="small" />
    </section>
  );
