import { html } from "hono/html";
import type { Child } from "hono/jsx";
import type { JSX } from "hono/jsx/jsx-runtime";
import type { Assets } from "../assets.ts";
import { FORM_TOKEN } from "../session_guard.ts";
import { Icon, type IconName } from "./icon.tsx";

/** What every page of a signed-in owner is made with. */
export interface Frame {
  assets: Assets;
  email: string;
  formToken: string;
  /** A change that was just made. */
  notice: string | null;
  /** Something the operator must know, on every page until it is mended. */
  warning: string | null;
}

/** Parts of the console, by the first part of their path. */
export type Section = "keys" | "usage" | "audit" | "account";

const SECTIONS: readonly [Section, label: string, IconName][] = [
  ["keys", "API keys", "key"],
  ["usage", "Usage", "chart"],
  ["audit", "Audit log", "list"],
  ["account", "Account", "person"],
];

interface DocumentProps {
  title: string;
  assets: Assets;
  children: Child;
}

/** The bare document, for pages of people who are not signed in. */
function Document(
  { title, assets, children }: DocumentProps,
): JSX.Element {
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

interface PageProps {
  title: string;
  frame: Frame;
  section: Section;
  children: Child;
}

/** A page behind the sign-in: navigation, notices, content. */
export function Page(
  { title, frame, section, children }: PageProps,
): JSX.Element {
  return (
    <Document title={title} assets={frame.assets}>
      <a class="skip" href="#content">Skip to the content</a>
      <div class="shell">
        <Side frame={frame} section={section} />
        <main id="content" tabindex={-1}>
          <Notices frame={frame} />
          {children}
        </main>
      </div>
    </Document>
  );
}

function Side(
  { frame, section }: { frame: Frame; section: Section },
): JSX.Element {
  return (
    <header class="side">
      <a class="brand" href="/keys">
        <Icon name="mark" />
        <span>Gateway</span>
      </a>
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
        <span class="who-mail" title={frame.email}>{frame.email}</span>
        <form method="post" action="/sign-out">
          <FormToken frame={frame} />
          <button class="quiet" type="submit">
            <Icon name="leave" /> Sign out
          </button>
        </form>
      </div>
    </header>
  );
}

function Notices(
  { frame: { warning, notice } }: { frame: Frame },
): JSX.Element {
  return (
    <>
      {warning && (
        <p class="banner warn" role="alert">
          <Icon name="warn" />
          <span>{warning}</span>
        </p>
      )}
      {notice && (
        <p class="banner good" role="status">
          <Icon name="check" />
          <span>{notice}</span>
        </p>
      )}
    </>
  );
}

/** A narrow page in the middle: sign-in, set-up, refusals. */
export function Card(
  { title, assets, lead, children }: DocumentProps & { lead?: string },
): JSX.Element {
  return (
    <Document title={title} assets={assets}>
      <main id="content" class="alone">
        <div class="brand">
          <Icon name="mark" />
          <span>Gateway</span>
        </div>
        <section class="card">
          <h1>{title}</h1>
          {lead && <p class="lead">{lead}</p>}
          {children}
        </section>
      </main>
    </Document>
  );
}

/** Proves that a form is from a page of this session. */
export function FormToken({ frame }: { frame: Frame }): JSX.Element {
  return <input type="hidden" name={FORM_TOKEN} value={frame.formToken} />;
}

/** One mistake beside its field, tied to it by `aria-describedby`. */
export function FieldError(
  { id, message }: { id: string; message: string | undefined },
): JSX.Element | null {
  return message === undefined
    ? null
    : <p class="field-error" id={id}>{message}</p>;
}

/** Mistakes of a whole form. */
export function FormErrors(
  { errors }: { errors: readonly string[] },
): JSX.Element | null {
  if (errors.length === 0) return null;
  return (
    <div class="banner bad" role="alert">
      <Icon name="warn" />
      <div>{errors.map((error) => <p key={error}>{error}</p>)}</div>
    </div>
  );
}
