/** Pages of operators about owners: the list, and one account with its changes. */

import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { Limits } from "@gateway/shared/keys/record";
import { z } from "zod";
import { limitsOf, SETTING_TEXTS } from "../../../domain/keys/settings.ts";
import {
  changesOf,
  OWNER_CHANGES,
  type OwnerChange,
  type OwnerLink,
} from "../../../domain/operators/operators.ts";
import { runningKeys } from "../../../domain/operators/running_keys.ts";
import type { OwnerRow } from "../../../domain/operators/people_rows.ts";
import { parseEmail } from "../../../domain/owners/email.ts";
import { LINK_TIMES, linkPath } from "../../../domain/sign_in/links.ts";
import {
  type ConsoleContext,
  type Handler,
  operatorOf,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm, text } from "../../request/forms.ts";
import { stopRequests } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { address, Box, PostForm, ShownOnce, Table } from "../../view/parts.tsx";
import { ownerColumns } from "./owner_columns.tsx";
import { listKeys, listOwners } from "./people_lists.tsx";
import { accountLimits } from "../usage/limits_view.tsx";
import { labelOf } from "../../view/texts.tsx";
import { behindPassword, EmailField } from "../account/sign_in_page.tsx";
import { choiceOf } from "../usage/usage_choice.tsx";
import { answerUsage } from "../usage/usage_page.tsx";
import { usageView } from "../usage/usage_view.tsx";

const inviteForm: Handler = (c) => (
  <Page
    c={c}
    title="Invite somebody"
    lead="You get a link that works once, within 3 days. Whoever opens it first chooses the password."
    isCard
  >
    <PostForm action="/people" submit="Create link" cancel="/people">
      <EmailField value="" placeholder="ada@example.org" />
    </PostForm>
    <p class="help">
      Nothing is sent: you pass the link on. Whoever you invite creates keys of
      their own and sees only these; you can limit all of them together, and add
      them to a project, as soon as the link is made. Until they have chosen a
      password, People shows “Not signed in yet”.
    </p>
    {c.var.deps.oidc !== null && (
      <p class="help">
        Who signs in with {c.var.deps.oidc.name} needs no invitation.
      </p>
    )}
  </Page>
);

const invite: Handler = async (c) => {
  const email = parseEmail(parseForm(c, FORM.pick({ email: true })).email);
  if (email === null) throw new Refused(400, "This is not an e-mail address");
  const link = await c.var.deps.operators.invite(operatorOf(c), email);
  return answerLink(c, link);
};

const CHANGES: Readonly<Record<OwnerChange, string>> = {
  reset_password:
    "You get a link that works once, within 1 hour. Whoever opens it first chooses the new password. Two-step sign-in stays on.",
  remove_second_factor:
    "For an owner who has lost the authenticator app and the recovery codes. Make sure that it is really the owner who asks: afterwards, the password alone is enough to sign in. The owner is told who removed it, and when.",
  sign_out_everywhere:
    "Ends all sessions of this owner. The keys keep working.",
  make_operator:
    "Operators see all owners and keys. They invite and disable owners, reset their passwords, set their limits, and make others operators.",
  remove_role_of_operator: "The owner keeps the account and the keys.",
  disable:
    "The owner is signed out and cannot sign in, and every request with one of the owner's keys is refused from now on. Running requests finish, unless you stop them. Nothing is deleted; you can enable the owner again at any time.",
  enable: "The owner can sign in again, and the enabled keys work again.",
};

const CHANGE_FORM = z.strictObject({
  what: z.enum(OWNER_CHANGES),
  stop_running: FORM.shape.stop_running,
});
/** The form of limits, not checked yet. */
export const LIMITS_FORM = z.strictObject(limitsOf(() => text(20)));
const LIMITS = SETTING_TEXTS.pick(limitsOf(() => true as const));

async function findPerson(c: ConsoleContext): Promise<OwnerRow> {
  const { people, now } = c.var.deps;
  const row = await people.find(c.req.param("id") ?? "", usageDay(now()));
  if (row !== null) return row;
  throw new Refused(404, "This owner does not exist");
}

async function showPerson(
  c: ConsoleContext,
  values?: Readonly<Record<keyof Limits, string>>,
  error?: string,
) {
  const { deps, deps: { now }, signedIn } = c.var;
  const row = await findPerson(c);
  const { ownerId, email } = row.account;
  const here = `/people/${ownerId}`;
  const keys = address("/people/keys", { search: email });
  const choice = choiceOf(c);
  return (
    <Page
      c={c}
      title={email || "First owner"}
      error={error ?? choice.error}
      actions={<a class="button" href={keys}>Keys</a>}
    >
      <Table
        caption="Owner"
        rows={[row]}
        columns={ownerColumns(now(), {
          used: "today",
          prices: deps.catalog.prices,
        })}
      />
      {await accountLimits(deps, ownerId, {
        action: `${here}/limits`,
        texts: values,
        whose: "other",
        isOpen: error !== undefined,
      })}
      <section class="card">
        <h2>Account</h2>
        {signedIn.session.ownerId === ownerId
          ? (
            <p>
              This is your own account: see <a href="/account">Account</a>.
            </p>
          )
          : changesOf(row.account).map((what) => {
            const title = labelOf(what);
            const look = /disable|remove/.test(what) ? "bad" : "";
            return (
              <details>
                <summary>{title}</summary>
                <PostForm
                  action={here}
                  hidden={{ what }}
                  submit={title}
                  look={`primary ${look}`}
                >
                  <p class="lead">{CHANGES[what]}</p>
                  {what === "disable" && (
                    <Box name="stop_running">
                      Also stop requests that are running now
                    </Box>
                  )}
                </PostForm>
              </details>
            );
          })}
      </section>
      {await usageView(deps, {
        ownerId,
        base: here,
        choice,
        keys: `${here}/keys`,
      })}
    </Page>
  );
}

const exportUsage: Handler = async (c) => {
  const { ownerId } = (await findPerson(c)).account;
  return answerUsage(c, { ownerId });
};

const change: Handler = async (c) => {
  const { what, stop_running: stops } = parseForm(c, CHANGE_FORM);
  const { ownerId } = (await findPerson(c)).account;
  const { operators } = c.var.deps;
  const link = await operators.change(operatorOf(c), ownerId, what);
  if (link !== null) return answerLink(c, link);
  const notice = what === "disable" && stops
    ? await stopRunning(c, ownerId)
    : "owner_changed";
  return c.redirect(`/people/${ownerId}?done=${notice}`, 303);
};

/** Stops the running requests of an owner. Returns the name of the notice to show. */
async function stopRunning(c: ConsoleContext, ownerId: string) {
  const keys = await runningKeys(c.var.deps.redis, ownerId);
  return await stopRequests(c, keys) ? "owner_stopping" : "not_stopped";
}

/** Reads the posted limits. Returns mistakes by field if they are wrong. */
export function readLimits(c: ConsoleContext) {
  const values = parseForm(c, LIMITS_FORM);
  const { data: limits, error } = LIMITS.safeParse(values);
  const texts = error?.issues.map(({ path: [name], message }) =>
    `${labelOf(String(name))}: ${message}.`
  );
  return { values, limits, error: texts?.join(" ") };
}

const setLimits: Handler = async (c) => {
  const { ownerId } = (await findPerson(c)).account;
  const { values, limits, error } = readLimits(c);
  if (limits === undefined) return await showPerson(c, values, error);
  await c.var.deps.operators.setLimits(operatorOf(c), ownerId, limits);
  return c.redirect(`/people/${ownerId}?done=owner_changed`, 303);
};

const answerLink = (
  c: ConsoleContext,
  { ownerId, email, kind, secret }: OwnerLink,
) => (
  <Page
    c={c}
    title="Pass this link on now"
    lead={`It works once, within ${
      LINK_TIMES[kind]
    }, and is shown only now. Give it only to ${email}: whoever opens it first chooses the password.`}
    status={201}
    isCard
  >
    <ShownOnce
      label="One-time link"
      value={new URL(linkPath(secret), c.var.deps.publicUrl).href}
      next={`/people/${ownerId}`}
      confirm="I have passed it on"
    />
  </Page>
);

/** The routes for operators. */
export const peopleRoutes: Routes = {
  "/people": { GET: listOwners, POST: behindPassword(invite) },
  "/people/new": { GET: inviteForm },
  "/people/keys": { GET: listKeys },
  "/people/:id": {
    GET: (c: ConsoleContext) => showPerson(c),
    POST: behindPassword(change),
  },
  "/people/:id/export.csv": { GET: exportUsage },
  "/people/:id/limits": { POST: behindPassword(setLimits) },
};
