import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { Log } from "@gateway/shared/process/log";
import type { Context } from "hono";
import type { HtmlEscapedString } from "hono/utils/html";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Target } from "../domain/keys/key_store.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import type { Operator } from "../domain/operators/operators.ts";
import type { Account } from "../domain/owners/owner_store.ts";
import type { OidcClient } from "../domain/sign_in/oidc.ts";
import type { PasswordHasher } from "../domain/sign_in/password.ts";
import type { Session } from "../domain/sign_in/sessions.ts";
import type { Stores } from "../domain/stores.ts";
import type { AskApi } from "../domain/try/edge.ts";
import type { Assets } from "./server.ts";

export interface ConsoleDeps extends Stores {
  hasher: PasswordHasher;
  sendStop: SendStop;
  oidc: OidcClient | null;
  assets: Assets;
  log: Log;
  /** Origin of the console as browsers see it. */
  publicUrl: URL;
  /** Base URL of the API in examples. */
  apiUrl: string;
  askApi: AskApi;
  /** Whether the model simulator answers, for the banner. */
  isSimulated: boolean;
  /** The models that keys may be limited to. */
  catalog: Catalog;
}

/** Who is signed in; set on every private route. */
export interface SignedIn {
  session: Session;
  account: Account;
}

export interface ConsoleEnv {
  Bindings: { remoteIp: string };
  Variables: {
    deps: ConsoleDeps;
    requestId: string;
    /** The posted form, read once by the form guard. */
    form: URLSearchParams;
    /** The file of an upload. */
    file: File | undefined;
    signedIn: SignedIn;
  };
}

export type ConsoleContext = Context<ConsoleEnv>;

/** A response, or a page to answer with. */
type Answer = Response | HtmlEscapedString;

export type Handler = (c: ConsoleContext) => Answer | Promise<Answer>;

export type Routes = Readonly<
  Record<string, { GET?: Handler; POST?: Handler }>
>;

/** Where a request came from, as the operator's proxies report it. */
export const clientOf = (c: ConsoleContext) => ({
  ip: c.env.remoteIp,
  userAgent: c.req.header("user-agent") ?? "",
});

export const actorOf = (c: ConsoleContext) => ({
  by: c.var.signedIn.account.email,
  ip: c.env.remoteIp,
});

export const operatorOf = (c: ConsoleContext): Operator => ({
  ...actorOf(c),
  ownerId: c.var.signedIn.session.ownerId,
});

/**
 * The key in the path. For this owner, the keys of others do not exist (API1, ASVS
 * 8.2.2).
 */
export async function findKey(c: ConsoleContext): Promise<KeyRecord> {
  const { deps: { keys }, signedIn: { session: { ownerId } } } = c.var;
  return await keys.find(ownerId, c.req.param("id") ?? "");
}

/** The key in the path, in the version that the page showed. */
export const targetOf = (c: ConsoleContext, version: number): Target => ({
  ownerId: c.var.signedIn.session.ownerId,
  keyId: c.req.param("id") ?? "",
  version,
  actor: actorOf(c),
});

/**
 * An expected refusal. It becomes a page with this status and message, a sentence
 * without its full stop.
 */
export class Refused extends Error {
  override name = "Refused";

  constructor(
    readonly status: ContentfulStatusCode,
    message: string,
    readonly options: ErrorOptions & {
      headers?: Readonly<Record<string, string>>;
      /**
       * Where the page's button leads; by default to the page of the key or owner, or
       * to the section.
       */
      back?: string;
    } = {},
  ) {
    super(message, options);
  }
}

/** Answers with a file, streamed line by line to bound memory. */
export function answerCsv(
  c: ConsoleContext,
  name: string,
  lines: AsyncIterable<string>,
): Response {
  const body = ReadableStream.from(lines);
  return c.body(body.pipeThrough(new TextEncoderStream()), 200, {
    "content-type": "text/csv; charset=utf-8",
    "content-disposition": `attachment; filename="${name}"`,
  });
}
