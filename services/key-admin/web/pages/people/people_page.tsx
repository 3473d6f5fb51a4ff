/** Pages of operators about owners: the list, and one account with its changes. */

import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { Limits } from "@gateway/shared/keys/record";
import { z } from "zod";
import { PAGE_ROWS } from "../../../domain/keys/key_page.ts";
import {
  limitsOf,
  limitText,
  SETTING_TEXTS,
} from "../../../domain/keys/settings.ts";
import { spendCsv } from "../../../domain/keys/spend_csv.ts";
import { usageCsv } from "../../../domain/keys/usage_csv.ts";
import {
  changesOf,
  OWNER_CHANGES,
  type OwnerChange,
  type OwnerLink,
} from "../../../domain/operators/operators.ts";
import { runningKeys } from "../../../domain/operators/running_keys.ts";
import type {
  OwnerRow,
  PeopleQuery,
} from "../../../domain/operators/people.ts";
import { parseEmail } from "../../../domain/owners/email.ts";
import { LINK_TIMES, linkPath } from "../../../domain/sign_in/links.ts";
import {
  answerCsv,
  type ConsoleContext,
  type Handler,
  operatorOf,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm, text } from "../../request/forms.ts";
import { operatorPath, stopRequests } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  Box,
  type Column,
  Order,
  Pager,
  PostForm,
  Search,
  ShownOnce,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import { PEOPLE_VIEWS } from "../usage/addresses.ts";
import { ownerColumns } from "./owner_columns.tsx";
import { spendFile, spendLinks, spendQueryOf } from "../usage/spend_links.tsx";
import { limitFields } from "../usage/limits_view.tsx";
import { Email, keyName, labelOf } from "../../view/texts.tsx";
import { cleanSearch, stateColumns } from "../keys/keys_page.tsx";
import { behindPassword, EmailField } from "../account/sign_in_page.tsx";
import { rangeOf, usageView } from "../usage/usage_page.tsx";

/** The orders of owners, each by a total over some days, the largest first. */
const ORDERS = [
  ["", "Newest first"],
  ["tokens-1", "Most tokens today"],
  ["requests-1", "Most requests today"],
  ["tokens-30", "Most tokens in 30 days"],
  ["requests-30", "Most requests in 30 days"],
] as const;
/** Orders by spend, where models have prices. */
const SPEND_ORDERS = [
  ["cost-1", "Highest cost today"],
  ["cost-30", "Highest cost in 30 days"],
] as const;
const TOP = /^(tokens|requests|cost)-(1|30)$/;

/** A list for operators. */
export interface View<Row> {
  /** The placeholder of its search. */
  placeholder: string;
  /** Reads a page of it; `next` is the cursor of the page after. */
  read: (query: PeopleQuery) => Promise<{ rows: Row[]; next: string | null }>;
  columns: readonly Column<Row>[];
}

/** Returns the order that the address asks for; null for the newest first. */
export function topOf(c: ConsoleContext) {
  const [, by, days] = TOP.exec(c.req.query("top") ?? "") ?? [];
  return by === "tokens" || by === "requests" || by === "cost"
    ? { by, days: Number(days) } as const
    : null;
}

/** The page of a view that the address asks for, with its search. */
export async function showView<Row>(
  c: ConsoleContext,
  { placeholder, read, columns }: View<Row>,
) {
  const { path } = c.req;
  const search = cleanSearch(c.req.query("search") ?? "");
  const [after = "", top = ""] = [c.req.query("after"), c.req.query("top")];
  const { now, catalog } = c.var.deps;
  const day = usageDay(now());
  const hasPrices = catalog.prices.id !== null;
  const { rows, next } = await read({ search, after, rows: PAGE_ROWS, day });
  return (
    <Page
      c={c}
      title="People"
      lead="All owners and projects, with usage and keys. Only operators see this."
      actions={path === "/people/projects"
        ? <a class="button primary" href="/projects/new">Create project</a>
        : <a class="button primary" href="/people/new">Invite somebody</a>}
    >
      <div class="row between">
        <Tabs
          label="View"
          tabs={PEOPLE_VIEWS}
          current={path}
          to={(view) => view}
        />
        {path !== "/people/keys" && (
          <Order
            action={path}
            name="top"
            orders={hasPrices ? [...ORDERS, ...SPEND_ORDERS] : ORDERS}
            current={top}
          />
        )}
        <Search action={path} search={search} placeholder={placeholder} />
      </div>
      <Table
        caption={`${TOP.test(top) ? "Most" : "Newest"} first, days in UTC`}
        empty={{ title: "Nothing found", lead: "Try fewer or shorter words." }}
        rows={rows}
        columns={columns}
      />
      {hasPrices && path === "/people" && (
        <div class="row">{spendLinks("/people/spend.csv", now())}</div>
      )}
      <Pager
        after={after}
        next={next}
        to={(after) => address(path, { search, after })}
      />
    </Page>
  );
}

const listOwners: Handler = (c) => {
  const { people, now, catalog } = c.var.deps;
  const top = topOf(c);
  return showView(c, {
    placeholder: "Part of an e-mail address",
    read: top === null
      ? (query) => people.list(query)
      : () => people.top(top.by, top.days),
    columns: ownerColumns(now(), {
      used: top?.days === 30 ? "in 30 days" : "today",
      prices: catalog.prices,
    }),
  });
};

const listKeys: Handler = (c) => {
  const { people, now, catalog } = c.var.deps;
  return showView(c, {
    placeholder: "Description, account, id or last 4",
    read: (query) => people.keys(query),
    columns: [
      ["Key", ({ key }) => (
        <>
          {keyName(key, `/people/${key.ownerId}/keys`)}
          <p class="help">{key.id}</p>
        </>
      )],
      ["Account", ({ ownerId, name }) => (
        <a href={operatorPath(ownerId)}>
          <Email>{name}</Email>
        </a>
      )],
      ...stateColumns(now(), catalog.prices),
    ],
  });
};

const inviteForm: Handler = (c) => (
  <Page
    c={c}
    title="Invite somebody"
    lead="You get a link that works once, within 3 days. Whoever opens it first chooses the password."
    isCard
  >
    <PostForm action="/people" submit="Create link" cancel="/people">
      <EmailField value="" />
    </PostForm>
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
  const { deps, deps: { owners, now }, signedIn } = c.var;
  const row = await findPerson(c);
  const { ownerId, email } = row.account;
  const limits = await owners.limits(ownerId);
  const texts = values ??
    limitsOf((name) => limits[name] === 0 ? "" : limitText(name, limits[name]));
  const here = `/people/${ownerId}`;
  const keys = address("/people/keys", { search: email });
  return (
    <Page
      c={c}
      title={email || "First owner"}
      error={error}
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
      <section class="card">
        <h2>Limits of all keys together</h2>
        <PostForm action={`${here}/limits`} submit="Save limits" look="">
          {limitFields((name) => ({ value: texts[name] }))}
        </PostForm>
      </section>
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
      {await usageView(deps, { ownerId, base: here, range: rangeOf(c) })}
    </Page>
  );
}

const exportUsage: Handler = async (c) => {
  const { redis, now } = c.var.deps;
  const { ownerId } = (await findPerson(c)).account;
  return answerCsv(
    c,
    "usage.csv",
    usageCsv(redis, { ownerId, key: null }, now()),
  );
};

const exportSpend: Handler = (c) => {
  const { redis, people } = c.var.deps;
  const query = spendQueryOf(c);
  const lines = spendCsv(redis, people.accounts(), query);
  return answerCsv(c, spendFile(query), lines);
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
  "/people/spend.csv": { GET: exportSpend },
  "/people/:id": {
    GET: (c: ConsoleContext) => showPerson(c),
    POST: behindPassword(change),
  },
  "/people/:id/export.csv": { GET: exportUsage },
  "/people/:id/limits": { POST: behindPassword(setLimits) },
};
