import type { Account } from "../domain/owners/account.ts";
import { EMAIL_CHARS_MAX, parseEmail } from "../domain/owners/directory.ts";
import { type Link, linkPath } from "../domain/sign_in/links.ts";
import {
  PASSWORD_CHARS_MAX,
  PASSWORD_CHARS_MIN,
  passwordChars,
  passwordProblem,
} from "../domain/sign_in/password.ts";
import { admit, signIn } from "../domain/sign_in/sign_in.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "./context.ts";
import { emailText, passwordText, pathText, readForm, text } from "./forms.ts";
import { Banner, Field, FormError, PasswordField } from "./parts.tsx";
import { Card } from "./layout.tsx";
import { enter, findSignedIn, localPath, readCookie } from "./session.ts";

/** Signing in with a password, and the links that lead to one. */

/** Above `PASSWORD_CHARS_MAX`, so that a long password gets its own message. */
const PASSWORD_BYTES_MAX = 30_000;

const openSignIn: Handler = async (c, deps) => {
  if (await findSignedIn(c, deps) !== null) return c.redirect("/keys", 302);
  const first = await deps.accounts.read(await deps.owners.first());
  return showSignIn(c, deps, {
    email: "",
    next: localPath(c.req.query("next")),
    isSetUp: first !== null && first.passwordHash !== null,
  });
};

const trySignIn: Handler = async (c, deps) => {
  const { next, ...form } = readForm(c, {
    email: emailText,
    password: text(PASSWORD_BYTES_MAX),
    code: text(60),
    next: pathText,
  });
  if (passwordChars(form.password) > PASSWORD_CHARS_MAX) {
    throw new Refused(400, "The password is too long", { back: "/sign-in" });
  }
  const result = await signIn(deps, {
    ...form,
    client: clientOf(c),
    device: readCookie(c, deps, "device"),
  });
  if (result.ok) return await enter(c, deps, result, localPath(next));
  const { waitMs } = result;
  if (waitMs > 0) c.header("retry-after", String(Math.ceil(waitMs / 1_000)));
  return showSignIn(c, deps, {
    email: form.email,
    next: localPath(next),
    isSetUp: true,
    error: waitMs > 0
      ? waitText(waitMs)
      : "E-mail, password or code is not right.",
  }, waitMs > 0 ? 429 : 401);
};

/** Says when the next try is possible. */
export function waitText(waitMs: number): string {
  const seconds = Math.ceil(waitMs / 1_000);
  return `Too many tries. Try again in ${
    seconds < 100 ? `${seconds} seconds` : `${Math.ceil(seconds / 60)} minutes`
  }.`;
}

const openLink: Handler = async (c, deps) => {
  const { secret, link } = await openedLink(c, deps);
  const email = link.kind === "set_up" ? "" : link.email;
  return showLink(c, deps, { secret, link, email });
};

const useLink: Handler = async (c, deps) => {
  const { secret, link } = await openedLink(c, deps);
  const form = readForm(c, { email: emailText, new_password: passwordText });
  const email = link.kind === "set_up" ? parseEmail(form.email) : link.email;
  const error = await linkProblem(deps, link, email, form.new_password);
  if (error !== null || email === null) {
    return showLink(c, deps, { secret, link, email: form.email, error });
  }
  const hash = await deps.hasher.hash(form.new_password);
  const account = await acceptLink(deps, secret, email, hash);
  await deps.audit.add(account.ownerId, {
    action: link.kind === "reset"
      ? "account.password_changed"
      : "account.created",
    by: account.email,
    ip: c.env.remoteIp,
  });
  await deps.sessions.endOthers(account.ownerId, null);
  // A reset does not bypass the second factor.
  if (account.totpSecret !== null) return c.redirect("/sign-in", 303);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, deps, admitted, "/keys");
};

export const signInRoutes: Routes = {
  "/sign-in": { GET: openSignIn, POST: trySignIn },
  "/link/:secret": { GET: openLink, POST: useLink },
};

const linkOver = () =>
  new Refused(
    404,
    "This link was already used or has expired. Sign in if you have an account, or ask for a new link",
    { back: "/sign-in" },
  );

/** The link of the path, if it still works. */
async function openedLink(
  c: ConsoleContext,
  { links }: ConsoleDeps,
): Promise<{ secret: string; link: Link }> {
  const secret = c.req.param("secret") ?? "";
  const link = await links.peek(secret);
  if (link === null) throw linkOver();
  return { secret, link };
}

async function linkProblem(
  { owners }: ConsoleDeps,
  link: Link,
  email: string | null,
  password: string,
): Promise<string | null> {
  if (email === null) return "This is not an e-mail address.";
  const holder = await owners.find(email);
  if (holder !== null && holder !== link.ownerId) {
    return "This address belongs to another owner.";
  }
  return passwordProblem(password, { email });
}

/** Consumes the link and sets up the account. */
async function acceptLink(
  { links, owners, accounts }: ConsoleDeps,
  secret: string,
  email: string,
  passwordHash: string,
): Promise<Account> {
  const link = await links.use(secret);
  const before = link === null ? null : await accounts.read(link.ownerId);
  // There may be two set-up links; the second must not take over the account.
  const isOver = link === null || before === null ||
    (link.kind !== "reset" && before.passwordHash !== null);
  if (isOver || !(await owners.claim(link.ownerId, email))) throw linkOver();
  await accounts.setPassword(link.ownerId, passwordHash);
  return { ...before, email, passwordHash };
}

/** One form for everything, so that it does not reveal which part was wrong. */
function showSignIn(
  c: ConsoleContext,
  { assets, oidc }: ConsoleDeps,
  { email, next, isSetUp, error }: {
    email: string;
    next: string;
    /** False: nobody has an account yet. */
    isSetUp: boolean;
    error?: string;
  },
  status: 200 | 401 | 429 = 200,
): Response | Promise<Response> {
  return c.html(
    <Card title="Sign in" assets={assets}>
      <FormError error={error} />
      {!isSetUp && (
        <Banner look="note" icon="key">
          Nobody has an account yet. The service prints a one-time set-up link
          when it starts, and the command <code>owners set-up</code>{" "}
          prints a new one.
        </Banner>
      )}
      {oidc !== null && (
        <>
          <a class="button primary wide" href="/sign-in/oidc">
            Continue with {oidc.name}
          </a>
          <p class="or">or</p>
        </>
      )}
      <form method="post" action="/sign-in" data-once="">
        <input type="hidden" name="next" value={next} />
        <EmailField value={email} />
        <PasswordField label="Password" isNext={email !== ""} />
        <Field
          id="code"
          label="Code"
          note="if you use two-step sign-in"
          help="From your authenticator app, or one of your recovery codes."
          autocomplete="one-time-code"
          inputmode="text"
          spellcheck={false}
          maxlength={40}
        />
        <button class="primary wide" type="submit">Sign in</button>
      </form>
    </Card>,
    status,
  );
}

const LINK_TEXTS: Record<
  Link["kind"],
  { title: string; lead: string; button: string }
> = {
  set_up: {
    title: "Set up the console",
    lead:
      "You are the first owner. Keys that were created before now are yours.",
    button: "Create account",
  },
  invite: {
    title: "Welcome",
    lead: "Choose a password for your account.",
    button: "Create account",
  },
  reset: {
    title: "New password",
    lead: "Choose a new password.",
    button: "Save and sign in",
  },
};

/** What a set-up, invitation or reset link opens. */
function showLink(
  c: ConsoleContext,
  { assets }: ConsoleDeps,
  { secret, link, email, error }: {
    secret: string;
    link: Link;
    email: string;
    error?: string | null;
  },
): Response | Promise<Response> {
  const { title, lead, button } = LINK_TEXTS[link.kind];
  return c.html(
    <Card title={title} assets={assets} lead={lead}>
      <FormError error={error} />
      <form method="post" action={linkPath(secret)} data-once="">
        <EmailField value={email} isGiven={link.kind !== "set_up"} />
        <NewPasswordField label="Password" isNext={email !== ""} />
        <button class="primary wide" type="submit">{button}</button>
      </form>
    </Card>,
    error ? 400 : 200,
  );
}

/** Focused until filled in; a given address cannot be changed. */
const EmailField = (
  { value, isGiven = false }: { value: string; isGiven?: boolean },
) => (
  <Field
    id="email"
    label="E-mail"
    type="email"
    value={value}
    required
    readonly={isGiven}
    autocomplete="username"
    maxlength={EMAIL_CHARS_MAX}
    autofocus={value === ""}
  />
);

/** A new password, typed once: it can be shown, pasted or generated. */
export const NewPasswordField = (
  { label, isNext = false }: { label: string; isNext?: boolean },
) => (
  <Field
    id="new_password"
    label={label}
    type="password"
    required
    minlength={PASSWORD_CHARS_MIN}
    autocomplete="new-password"
    autofocus={isNext}
    help={`At least ${PASSWORD_CHARS_MIN} characters. A few words in a row are fine.`}
  >
    <button class="quiet small" type="button" data-reveal="new_password" hidden>
      Show
    </button>
  </Field>
);
