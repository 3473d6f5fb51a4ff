/**
 * Signing in with a password, a link or the organisation's provider, and entering the
 * password again.
 */

import { EMAIL_CHARS_MAX, parseEmail } from "../../../domain/owners/email.ts";
import { takeRates } from "../../../domain/sign_in/attempts.ts";
import { applyGroups } from "../../../domain/group_roles/apply_groups.ts";
import type { Link } from "../../../domain/sign_in/links.ts";
import { NotAllowed, type OidcClient } from "../../../domain/sign_in/oidc.ts";
import {
  PASSWORD_CHARS_MIN,
  passwordProblem,
} from "../../../domain/sign_in/password.ts";
import { admit, checkAgain, signIn } from "../../../domain/sign_in/sign_in.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm } from "../../request/forms.ts";
import { HeldForm, Page, signInAgain } from "../../view/layout.tsx";
import { Box, Field, PasswordField, PostForm } from "../../view/parts.tsx";
import {
  CONFIRMED,
  enter,
  findSignedIn,
  isFresh,
  localPath,
  readCookie,
  writeCookie,
} from "../../request/session.ts";
import { unitsText } from "../../view/texts.tsx";

const openSignIn: Handler = async (c) => {
  if (await findSignedIn(c) !== null) return c.redirect("/keys", 302);
  return await showSignIn(c, { email: "", next: c.req.query("next") ?? "" });
};

const trySignIn: Handler = async (c) => {
  const form = parseForm(
    c,
    FORM.pick({ email: true, password: true, code: true, next: true }),
  );
  const from = { ...clientOf(c), device: readCookie(c, "device") };
  const result = await signIn(c.var.deps, { ...form, ...from });
  if (result.ok) return await enter(c, result, localPath(form.next));
  const { waitMs, isDisabled } = result;
  if (waitMs > 0) {
    c.header("retry-after", String(Math.ceil(waitMs / 1_000)));
    return await showSignIn(c, {
      ...form,
      error: waitText(waitMs),
      status: 429,
    });
  }
  const error = isDisabled
    ? `${DISABLED}.`
    : "E-mail, password or code is wrong.";
  return await showSignIn(c, { ...form, error, status: 401 });
};

const DISABLED = "Your account is disabled. Ask your operator";

function waitText(ms: number): string {
  const [size, unit] = ms < 100_000 ? [1_000, "seconds"] : [60_000, "minutes"];
  const wait = unitsText(Math.ceil(ms / size), unit);
  return `Too many attempts. Try again in ${wait}.`;
}

const openLink: Handler = async (c) => {
  const { kind, account: { email } } = await findLink(c, "peek");
  return showLink(c, { kind, email });
};

const useLink: Handler = async (c) => {
  const { hasher, audit, sessions, owners } = c.var.deps;
  const { kind, account: { ownerId, ...before } } = await findLink(c, "peek");
  const form = parseForm(c, FORM.pick({ email: true, new_password: true }));
  const email = kind === "set_up" ? parseEmail(form.email) : before.email;
  if (email === null) {
    const error = "This is not an e-mail address.";
    return showLink(c, { kind, email: form.email, error });
  }
  const holder = await owners.find(email) ?? ownerId;
  const problem = holder !== ownerId
    ? "This address belongs to another owner."
    : await passwordProblem(form.new_password, { email });
  if (problem !== null) return showLink(c, { kind, email, error: problem });
  const passwordHash = await hasher.hash(form.new_password);
  await findLink(c, "use");
  if (!await owners.claim(ownerId, email)) throw new Refused(404, LINK_OVER);
  await owners.setPassword(ownerId, passwordHash);
  if (kind === "set_up") await owners.giveRole(ownerId);
  await audit.add(ownerId, {
    action: kind === "reset" ? "account.password_changed" : "account.created",
    by: email,
    ip: c.env.remoteIp,
    detail: kind === "set_up" ? "first owner and operator" : "",
  });
  await sessions.endOthers(ownerId, null);
  if (before.totpSecret !== null) return c.redirect("/sign-in?done=reset", 303);
  const account = { ...before, ownerId, email, passwordHash };
  const provedAtMs = c.var.deps.now();
  const entrance = { ...clientOf(c), failedBefore: 0, provedAtMs };
  const admitted = await admit(c.var.deps, account, entrance);
  return await enter(c, admitted, "/keys");
};

const CALLBACK = "/sign-in/oidc/callback";

const beginOidc: Handler = async (c) => {
  const { deps } = c.var;
  const provider = providerOf(deps);
  const callback = new URL(CALLBACK, deps.publicUrl);
  const mustProve = c.req.query("again") !== undefined;
  const { url, flow } = await provider.begin(callback, { mustProve })
    .catch((cause) => {
      deps.log.warn("oidc_unavailable", { error: cause });
      const failed =
        `${provider.name} does not answer as expected, so you cannot sign in with it now. Try again in a moment`;
      throw new Refused(503, failed, { cause });
    });
  writeCookie(c, "oidc", flow);
  return c.redirect(url.href, 302);
};

const finishOidc: Handler = async (c) => {
  const { deps } = c.var;
  const provider = providerOf(deps);
  const flow = readCookie(c, "oidc");
  writeCookie(c, "oidc", null);
  const { search } = new URL(c.req.url);
  const returned = new URL(CALLBACK + search, deps.publicUrl);
  // Each return causes a call to the provider, even with a cookie that somebody made
  // up.
  const waitMs = await takeRates(deps.redis, c.env.remoteIp);
  if (waitMs > 0) {
    const headers = { "retry-after": String(Math.ceil(waitMs / 1_000)) };
    const wait = waitText(waitMs).replace(/\.$/, "");
    throw new Refused(429, wait, { headers });
  }
  const nowMs = deps.now();
  const finished = provider.finish(returned, flow, { nowMs });
  const { identity, provedAtMs, groups } = await finished.catch((cause) => {
    deps.log.warn("oidc_refused", { error: cause });
    const failed =
      `Signing in with ${provider.name} failed. Start again. If that fails too, ask your operator`;
    throw cause instanceof NotAllowed
      ? new Refused(403, cause.message, { cause })
      : new Refused(400, failed, { cause });
  });
  const ownerId = await deps.owners.ofIdentity(identity);
  const account = await deps.owners.read(ownerId);
  if (account === null) throw new Error(`No account of owner ${ownerId}`);
  if (account.isDisabled) throw new Refused(403, DISABLED);
  const { groupRules: rules } = provider;
  const ip = c.env.remoteIp;
  if (rules) await applyGroups(deps, { account, ip, groups, rules });
  const entrance = { ...clientOf(c), failedBefore: 0, provedAtMs };
  const admitted = await admit(deps, account, entrance);
  return await enter(c, admitted, "/keys");
};

/**
 * Asks for the password first if it was entered long ago, and keeps the form for this.
 */
export const behindPassword = (handler: Handler): Handler => async (c) => {
  const { deps, form, signedIn: { session, account } } = c.var;
  const { data } = FORM.shape.password.safeParse(form.get(CONFIRMED));
  form.delete(CONFIRMED);
  if (isFresh(c)) return await handler(c);
  const { email, passwordHash } = account;
  if (passwordHash === null) return signInAgain(c, "/sign-in/oidc?again=1");
  const label = `Password of ${email}`;
  const problem = data ? await checkPassword(c, data) : undefined;
  if (problem === null) {
    await deps.sessions.update(session.id, { checkedAtMs: deps.now() });
    return await handler(c);
  }
  return (
    <Page
      c={c}
      title="Confirm your password"
      lead="You last entered your password over an hour ago. Enter it again to continue."
      error={problem}
      status={401}
      isCard
    >
      <HeldForm c={c}>
        <input type="hidden" autocomplete="username" value={email} />
        <PasswordField name={CONFIRMED} label={label} autofocus />
      </HeldForm>
    </Page>
  );
};

/**
 * The problem with the current password, or null. An account without a password must
 * have signed in recently.
 */
export async function checkPassword(
  c: ConsoleContext,
  password: string,
): Promise<string | null> {
  const { deps, signedIn: { account } } = c.var;
  if (account.passwordHash === null) {
    return isFresh(c) ? null : "Sign in again first.";
  }
  const { ok, waitMs } = await checkAgain(deps, account, {
    password,
    ip: c.env.remoteIp,
    device: readCookie(c, "device"),
  });
  if (ok) return null;
  return waitMs === 0 ? "The password is wrong." : waitText(waitMs);
}

/** The routes that lead to a session, which need none. */
export const signInRoutes: Routes = {
  "/sign-in": { GET: openSignIn, POST: trySignIn },
  "/sign-in/oidc": { GET: beginOidc },
  [CALLBACK]: { GET: finishOidc },
  "/link/:secret": { GET: openLink, POST: useLink },
};

const LINK_OVER =
  "This link was already used or has expired. Sign in if you have an account, or ask for a new link";

/**
 * The link of the path with its owner's account, if it still works. `use` uses it up.
 */
async function findLink(c: ConsoleContext, how: "peek" | "use") {
  const { links, owners } = c.var.deps;
  const link = await links[how](c.req.param("secret") ?? "");
  const account = link && await owners.read(link.ownerId);
  // There may be two links; the second must not take over the account.
  const isVoid = !account || account.isDisabled ||
    (link.kind === "reset"
      ? link.madeAtMs < account.passwordAtMs
      : account.passwordHash !== null);
  if (isVoid) throw new Refused(404, LINK_OVER);
  return { kind: link.kind, account };
}

function providerOf({ oidc }: ConsoleDeps): OidcClient {
  if (oidc === null) throw new Refused(404, "This page does not exist");
  return oidc;
}

interface SignInForm {
  email: string;
  /** The path to which it leads, checked by `localPath`. */
  next: string;
  error?: string;
  status?: 200 | 401 | 429;
}

/** One form for everything, so that it does not reveal which part was wrong. */
async function showSignIn(
  c: ConsoleContext,
  { email, next, error, status = 200 }: SignInForm,
) {
  const { oidc, owners } = c.var.deps;
  const isSetUp = await owners.setUpAccount() !== null;
  return (
    <Page c={c} title="Sign in" error={error} status={status} isCard>
      {!isSetUp && (
        <p>
          The console has not been set up yet. The service prints a one-time
          set-up link when it starts, and the command <code>owners set-up</code>
          {" "}
          prints a new one.
        </p>
      )}
      {oidc !== null && (
        <a class="button primary" href="/sign-in/oidc">
          Continue with {oidc.name}
        </a>
      )}
      <PostForm
        action="/sign-in"
        hidden={{ next: localPath(next) }}
        submit="Sign in"
      >
        <EmailField value={email} />
        <PasswordField label="Password" autofocus={email !== ""} />
        <details open={error !== undefined}>
          <summary>I use two-step sign-in</summary>
          <Field
            id="code"
            label="Code"
            help="From your authenticator app, or a recovery code."
            autocomplete="one-time-code"
            spellcheck={false}
            maxlength={40}
          />
        </details>
      </PostForm>
      {isSetUp && (
        <p class="help">
          Forgot your password? Ask your operator. Without your authenticator
          app, use a recovery code; if you have none left, ask your operator.
        </p>
      )}
    </Page>
  );
}

const LINK_TEXTS = {
  set_up: [
    "Set up the console",
    "You are the first owner and an operator. Keys that were created before now belong to you.",
  ],
  invite: ["Welcome", "Choose a password for your account."],
  reset: [
    "New password",
    "Choose a new password. With two-step sign-in, you need a code next.",
  ],
} as const;

interface LinkForm {
  kind: Link["kind"];
  email: string;
  error?: string;
}

/** Shows the page behind a one-time link, on which its holder chooses a password. */
function showLink(c: ConsoleContext, { kind, email, error }: LinkForm) {
  const [title, lead] = LINK_TEXTS[kind];
  return (
    <Page c={c} title={title} lead={lead} error={error} isCard>
      <PostForm
        action={c.req.path}
        submit={kind === "reset" ? "Save and continue" : "Create account"}
      >
        <EmailField value={email} readonly={kind !== "set_up"} />
        <NewPasswordField label="Password" autofocus={email !== ""} />
      </PostForm>
    </Page>
  );
}

/** An e-mail address, which has the focus while it is empty. */
export const EmailField = (
  input: { value: string; readonly?: boolean; placeholder?: string },
) => (
  <Field
    id="email"
    label="E-mail"
    type="email"
    required
    autocomplete="username"
    maxlength={EMAIL_CHARS_MAX}
    autofocus={input.value === ""}
    {...input}
  />
);

/** A new password, typed once: it can be shown, pasted or generated. */
export const NewPasswordField = (
  props: { label: string; autofocus?: boolean },
) => (
  <>
    <Field
      id="new_password"
      type="password"
      required
      minlength={PASSWORD_CHARS_MIN}
      autocomplete="new-password"
      help={`At least ${PASSWORD_CHARS_MIN} characters. A few words in a row are fine.`}
      {...props}
    />
    <div data-reveal="new_password" hidden>
      <Box>Show password</Box>
    </div>
  </>
);
