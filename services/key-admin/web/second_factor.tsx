import { raw } from "hono/html";
import { renderSVG } from "uqr";
import { mintTotpSecret, totpStep, totpUri } from "../domain/sign_in/totp.ts";
import { checkPassword, note, showAccount } from "./account_page.tsx";
import type { ConsoleContext, Handler } from "./context.ts";
import { FORM, readForm } from "./forms.ts";
import { showPage } from "./layout.tsx";
import { Field, PasswordField, PostForm, ShownOnce } from "./parts.tsx";

/** Turning two-step sign-in on and off. */

/** The name that the authenticator app shows beside the address. */
const ISSUER = "Gateway";
/** The white frame around a QR code. */
const QUIET_MODULES = 4;

const setUp: Handler = async (c) => {
  const { deps, signedIn: { account, session } } = c.var;
  if (account.passwordHash === null || account.totpSecret !== null) {
    return c.redirect("/account", 302);
  }
  const secret = mintTotpSecret(deps.randomBytes);
  await deps.sessions.update(session.id, { totpSecret: secret });
  return await showSetUp(c, secret);
};

const turnOn: Handler = async (c) => {
  const { deps, signedIn: { account, session } } = c.var;
  const form = readForm(c, FORM.pick({ code: true, password: true }));
  const { ownerId, totpSecret: secret } = session;
  if (secret === "" || account.totpSecret !== null) {
    return c.redirect("/account", 303);
  }
  const step = totpStep(secret, form.code.replace(/\s/g, ""), deps.now());
  const error = await checkPassword(c, form.password);
  if (error !== null || step === null) {
    return await showSetUp(c, secret, error ?? WRONG_CODE);
  }
  // A form that is sent twice gets one set of recovery codes.
  if (!await deps.owners.useTotpStep(ownerId, step)) {
    return c.redirect("/account", 303);
  }
  const codes = await deps.owners.enableTotp(ownerId, secret);
  await note(c, "account.second_factor_on");
  return await showPage(
    c,
    {
      title: "Store your recovery codes",
      section: "account",
      lead:
        "Two-step sign-in is on. If you lose the app, each of these codes lets you sign in once. They are shown only now.",
      isCard: true,
    },
    <ShownOnce
      label="Recovery codes"
      value={codes.join("\n")}
      next="/account"
    />,
  );
};

const WRONG_CODE =
  "The code is wrong. Codes change every 30 seconds. Check the clock of your device.";

const turnOff: Handler = async (c) => {
  const { deps, signedIn: { account } } = c.var;
  const form = readForm(c, FORM.pick({ password: true }));
  const problem = await checkPassword(c, form.password);
  if (problem !== null) return await showAccount(c, problem);
  await deps.owners.disableTotp(account.ownerId);
  await note(c, "account.second_factor_off");
  return c.redirect("/account?done=factor_off", 303);
};

export const secondFactorRoutes = {
  "/account/second-factor": { GET: setUp, POST: turnOn },
  "/account/second-factor/off": { POST: turnOff },
};

/** Shows the secret for the app and asks for a code as proof. */
function showSetUp(
  c: ConsoleContext,
  secret: string,
  error?: string,
): Promise<Response> {
  const uri = totpUri(secret, c.var.signedIn.account.email, ISSUER);
  return showPage(
    c,
    {
      title: "Two-step sign-in",
      section: "account",
      error,
      isCard: true,
    },
    <>
      <p>
        Scan this with an authenticator app, or{" "}
        <a href={uri}>open it on this device</a>.
      </p>
      <div
        class="qr"
        role="img"
        aria-label="QR code for your authenticator app"
      >
        {raw(renderSVG(uri, { ecc: "M", border: QUIET_MODULES }))}
      </div>
      <p class="faint">
        Or type the secret: <code id="secret">{secret}</code>
      </p>
      <PostForm
        action="/account/second-factor"
        submit="Turn on"
        cancel="/account"
      >
        <Field
          id="code"
          label="Type the code that the app shows"
          required
          inputmode="numeric"
          pattern="[0-9 ]*"
          title="Six digits"
          maxlength={10}
          autocomplete="one-time-code"
          autofocus
        />
        <PasswordField label="Your password" />
      </PostForm>
    </>,
  );
}
