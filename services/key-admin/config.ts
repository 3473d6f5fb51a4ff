/** The one place of this service that reads the environment. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import type { Network } from "@gateway/shared/process/client_address";
import { Reading } from "@gateway/shared/reload/reading";
import type { LogLevel } from "@gateway/shared/process/log";
import type { RedisAddress } from "@gateway/shared/redis/connection";
import * as env from "@gateway/shared/process/env";
import * as catalogVariables from "@gateway/shared/models/catalog_variables";
import { BUDGET_VARIABLES } from "@gateway/shared/keys/budget_variables";
import * as serviceVariables from "@gateway/shared/process/service_variables";
import { z } from "zod";
import {
  type DefaultLimits,
  defaultLimitsOf,
  LIMIT_VARIABLES,
} from "./domain/keys/settings.ts";
import {
  isNoticeSecret,
  type NoticeTarget,
} from "./domain/notices/send_notice.ts";
import { isAdminKey } from "./domain/admin_keys/admin_key_store.ts";
import { parseEmail } from "./domain/owners/email.ts";
import {
  PROJECT_CREATORS,
  type ProjectCreators,
} from "./domain/projects/project_record.ts";
import { type OidcConfig, REAUTHENTICATIONS } from "./domain/sign_in/oidc.ts";
import { type GroupRules, parseGroupRules } from "./domain/sign_in/groups.ts";
import { isSafeUrl } from "./domain/sign_in/safe_url.ts";

const DEFAULT_PORT = 8081;
/** Whether passwords may be sent to an origin: it has TLS, or is this machine. */
function isSafeOrigin(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || url.href !== `${url.origin}/`) return false;
  return isSafeUrl(url);
}

const publicUrl = z.string().refine(isSafeOrigin)
  .transform((text) => new URL(text));

/**
 * Without TLS, an eavesdropper could sign in as anybody: the issuer vouches for people.
 */
const issuerUrl = z.string().refine((text) =>
  env.isUrl(text, ["http:", "https:"]) && isSafeUrl(new URL(text))
);

/**
 * Returns an e-mail address, or a domain with its `@`, in lower case; null for any
 * other text.
 */
function allowedOf(text: string): string | null {
  const local = text.startsWith("@") ? "anybody" : "";
  return parseEmail(local + text)?.slice(local.length) ?? null;
}

const groupRules = z.string().transform((text, context): GroupRules => {
  const rules = parseGroupRules(text);
  if (rules !== null) return rules;
  context.addIssue("not such JSON");
  return z.NEVER;
});

/** The variables of this service, as documented in docs/reference/variables.md. */
export const CONSOLE_VARIABLES = {
  ...serviceVariables.listenVariables(DEFAULT_PORT),
  ...serviceVariables.COMMON_VARIABLES,
  ...serviceVariables.NATS_VARIABLES,
  ...serviceVariables.REDIS_VARIABLES,
  PUBLIC_URL: env.variable(publicUrl, {
    expects:
      "an origin such as https://console.example.org (http:// on localhost only)",
  }).optional().describe("Origin of the console as browsers see it"),
  API_URL: env.url(["http:", "https:"]).default("http://127.0.0.1:8080/v1")
    .describe("Base URL of the API in the console's examples"),
  EDGE_URL: env.url(["http:", "https:"]).optional()
    .describe(
      "Base URL of the API for this service itself, which sends the requests of the Try it page; `API_URL` if not set",
    ),
  ...serviceVariables.PROXY_VARIABLES,
  OIDC_ISSUER: env.variable(issuerUrl, {
    expects: "a URL that begins with https:// (http:// on localhost only)",
  }).optional()
    .describe("OpenID Connect provider whose users may sign in"),
  OIDC_CLIENT_ID: env.text().optional()
    .describe("The console's name at the provider"),
  OIDC_CLIENT_SECRET: env.secret().optional()
    .describe("The console's secret at the provider"),
  OIDC_ALLOWED: env.list("a list of e-mail addresses and @domains", allowedOf)
    .default([])
    .describe("E-mail addresses and @domains that may sign in"),
  OIDC_REAUTHENTICATION: env.choice(REAUTHENTICATIONS).default("checked")
    .describe(
      "How somebody proves who they are after an hour: `checked`, the provider must say in `auth_time` that it asked just now; `trusted`, coming back from it is enough, for Google, which says no `auth_time`",
    ),
  OIDC_NAME: env.text().default("your organisation")
    .describe("Name of the provider on the sign-in page"),
  PROJECTS_CREATED_BY: env.choice(PROJECT_CREATORS).default("operators")
    .describe("Who may create projects: `operators`, or `everyone`"),
  OIDC_SCOPE: env.text().default("openid email")
    .describe(
      "What is asked of the provider; some need `groups` for the claim",
    ),
  OIDC_GROUPS_CLAIM: env.text().optional()
    .describe("Claim of the identity token that has somebody's groups"),
  OIDC_GROUPS: env.variable(groupRules, {
    expects:
      'JSON such as {"search":"prj_…:member","leads":["prj_…:admin","operator"]}',
  }).optional()
    .describe(
      "What groups give at each sign-in: roles in projects, and that of an operator",
    ),
  NOTIFY_URL: env.hidden(env.url(["http:", "https:"])).optional()
    .describe(
      "Where notices of budgets and of keys that expire are sent (docs/keys.md)",
    ),
  NOTIFY_SECRET: env.variable(z.string().refine(isNoticeSecret), {
    expects: "whsec_ and the base64 of 24 to 64 bytes",
    isSecret: true,
  }).optional()
    .describe("What signs them; needed with `NOTIFY_URL`"),
  ...LIMIT_VARIABLES,
  ...BUDGET_VARIABLES,
  ...catalogVariables.CATALOG_VARIABLES,
};

/** What the command line reads to ask a gateway elsewhere. */
export const COMMAND_VARIABLES = {
  GATEWAY_ADMIN_URL: env.variable(publicUrl, {
    expects:
      "the origin of a console such as https://console.example.org (http:// on localhost only)",
  }).optional().describe(
    "The console whose admin API commands ask, instead of Redis",
  ),
  GATEWAY_ADMIN_KEY: env.variable(z.string().refine(isAdminKey), {
    expects: "an admin key, sk-admin-…",
    isSecret: true,
  }).optional()
    .describe("The admin key of commands; needed with `GATEWAY_ADMIN_URL`"),
};

/** The console that commands ask, and their key; null: they ask Redis. */
export function adminAccessFrom(
  variables: env.Env,
  readFile: (path: string) => string,
): { url: URL; key: string } | null {
  const values = env.parseEnv(COMMAND_VARIABLES, variables, readFile);
  const { GATEWAY_ADMIN_URL: url, GATEWAY_ADMIN_KEY: key } = values;
  if (url === undefined && key === undefined) return null;
  if (url !== undefined && key !== undefined) return { url, key };
  const [missing, other] = url === undefined
    ? ["GATEWAY_ADMIN_URL", "GATEWAY_ADMIN_KEY"]
    : ["GATEWAY_ADMIN_KEY", "GATEWAY_ADMIN_URL"];
  const mistake = `${missing} is needed with ${other}`;
  throw new env.ConfigError("the environment", [mistake]);
}

/** What the service and the command line read from their environment. */
export interface ConsoleConfig {
  logLevel: LogLevel;
  /** Where the console listens. */
  hostname: string;
  port: number;
  /** Where the operations port is. */
  ops: { hostname: string; port: number };
  redis: RedisAddress;
  bus: serviceVariables.BusAccess;
  /** The origin of the console; null: the address that it listens on. */
  publicUrl: URL | null;
  /** Base URL of the API in examples, without a trailing slash. */
  apiUrl: string;
  /** Base URL of the API for the page "Try it", without a trailing slash. */
  edgeUrl: string;
  trustedProxies: readonly Network[];
  /** The provider whose users may sign in; null without one. */
  oidc: OidcConfig | null;
  defaultLimits: DefaultLimits;
  projectsCreatedBy: ProjectCreators;
  /** The time zone of the days and months of budgets. */
  budgetZone: string;
  /** The receiver of notices; null if they are not sent. */
  noticeTarget: NoticeTarget | null;
  /** Whether the model simulator answers. */
  isSimulated: boolean;
  /** The models; undefined if no variable names a model server. */
  catalog: ModelCatalog | undefined;
  /** How long requests may still run when the service stops. */
  drainMs: number;
}

/** The configuration of the service, which needs the models. */
export interface Config extends ConsoleConfig {
  /** The list of models, which may change. */
  list: Reading<ModelCatalog>;
}

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): Config {
  const variables = Deno.env.toObject();
  const readFile = readSettingsFile;
  const { readCatalog } = catalogVariables;
  return {
    ...configFrom(variables, readFile),
    list: new Reading((read) => readCatalog(variables, read), readFile),
  };
}

/** Reads the configuration from any environment. Throws as {@link readConfig}. */
export function configFrom(
  variables: env.Env,
  readFile: (path: string) => string,
): ConsoleConfig {
  const values = env.parseEnv(CONSOLE_VARIABLES, variables, readFile);
  return {
    logLevel: values.LOG_LEVEL,
    hostname: values.HOST,
    port: values.PORT,
    ops: { hostname: values.OPS_HOST, port: values.OPS_PORT },
    redis: serviceVariables.redisAccess(values),
    bus: serviceVariables.busAccess(values),
    publicUrl: values.PUBLIC_URL ?? null,
    apiUrl: values.API_URL.replace(/\/$/, ""),
    edgeUrl: (values.EDGE_URL ?? values.API_URL).replace(/\/$/, ""),
    trustedProxies: values.TRUSTED_PROXIES,
    oidc: oidcOf(values),
    defaultLimits: defaultLimitsOf(values),
    projectsCreatedBy: values.PROJECTS_CREATED_BY,
    budgetZone: values.BUDGET_TIME_ZONE,
    noticeTarget: noticeTargetOf(values),
    isSimulated: values.MODEL_SIMULATOR_URL !== undefined &&
      values.MODELS_FILE === undefined &&
      values.UPSTREAM_BASE_URL === undefined,
    // The console needs no keys of model servers.
    catalog: catalogVariables.catalogIfGiven(values, {
      hasUpstreamKey: false,
    }),
    drainMs: values.DRAIN_SECONDS * 1_000,
  };
}

function oidcOf(
  values: env.ConfigOf<typeof CONSOLE_VARIABLES>,
): OidcConfig | null {
  const { OIDC_ISSUER, OIDC_ALLOWED, OIDC_NAME: name } = values;
  const { OIDC_CLIENT_ID = "", OIDC_CLIENT_SECRET = "" } = values;
  if (OIDC_ISSUER === undefined) return null;
  // Without OIDC_ALLOWED anyone with an account at the provider could sign in.
  const needed = { OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, OIDC_ALLOWED };
  const missing = Object.entries(needed)
    .filter(([, value]) => value.length === 0)
    .map(([name]) => `${name} is needed with OIDC_ISSUER`);
  if (missing.length > 0) throw new env.ConfigError("the environment", missing);
  return {
    issuer: new URL(OIDC_ISSUER),
    clientId: OIDC_CLIENT_ID,
    clientSecret: OIDC_CLIENT_SECRET,
    allowed: OIDC_ALLOWED,
    reauthentication: values.OIDC_REAUTHENTICATION,
    scope: values.OIDC_SCOPE,
    groups: groupsOf(values),
    name,
  };
}

function noticeTargetOf(
  { NOTIFY_URL: url, NOTIFY_SECRET: secret }: env.ConfigOf<
    typeof CONSOLE_VARIABLES
  >,
): NoticeTarget | null {
  if (url === undefined) return null;
  if (secret !== undefined) return { url, secret };
  const mistake = "NOTIFY_SECRET is needed with NOTIFY_URL";
  throw new env.ConfigError("the environment", [mistake]);
}

/**
 * Returns the claim with the groups and the rules for them; neither makes sense alone.
 */
function groupsOf(
  { OIDC_GROUPS_CLAIM: claim, OIDC_GROUPS: rules }: env.ConfigOf<
    typeof CONSOLE_VARIABLES
  >,
): OidcConfig["groups"] {
  if (claim !== undefined && rules !== undefined) return { claim, rules };
  if (claim === undefined && rules === undefined) return null;
  const missing = claim === undefined ? "OIDC_GROUPS_CLAIM" : "OIDC_GROUPS";
  const other = claim === undefined ? "OIDC_GROUPS" : "OIDC_GROUPS_CLAIM";
  const mistake = `${missing} is needed with ${other}`;
  throw new env.ConfigError("the environment", [mistake]);
}
