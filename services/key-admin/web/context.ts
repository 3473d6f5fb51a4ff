/**
 * The types that the handlers of the console share: their dependencies, requests and
 * answers.
 */

import type { Catalog } from "@gateway/shared/models/catalog";
import type { Log } from "@gateway/shared/process/log";
import type { Context } from "hono";
import type { HtmlEscapedString } from "hono/utils/html";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Actor } from "../domain/audit/audit_log.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import type { FollowedWorkers } from "../domain/models/worker_follower.ts";
import type { Operator } from "../domain/operators/operators.ts";
import type { Account } from "../domain/owners/owner_store.ts";
import type {
  Membership,
  ProjectCreators,
} from "../domain/projects/project_record.ts";
import type { RunningRequests } from "../domain/running/running_requests.ts";
import type { OidcClient } from "../domain/sign_in/oidc.ts";
import type { PasswordHasher } from "../domain/sign_in/password.ts";
import type { Client, Session } from "../domain/sign_in/sessions.ts";
import type { Stores } from "../domain/stores.ts";
import type { AskApi } from "../domain/try/edge.ts";
import type { Assets } from "./assets.ts";

/**
 * The dependencies of the console: the stores, other services, and its configuration.
 */
export interface ConsoleDeps extends Stores {
  hasher: PasswordHasher;
  /** Tells the edges to stop the running requests of a key. */
  sendStop: SendStop;
  /** The organisation's provider; null without one. */
  oidc: OidcClient | null;
  assets: Assets;
  log: Log;
  /** Origin of the console as browsers see it. */
  publicUrl: URL;
  /** Base URL of the API in examples. */
  apiUrl: string;
  /** Sends the requests of the page "Try it" to an edge. */
  askApi: AskApi;
  /** Whether the model simulator answers, for the banner. */
  isSimulated: boolean;
  /**
   * Sends the overrides of operators to edges and workers. Returns false if the bus is
   * down.
   */
  tellOverrides: () => Promise<boolean>;
  /** The reports of workers on their model servers. */
  workers: Pick<FollowedWorkers, "backends" | "follower" | "waiting">;
  /** The running requests, as edges and workers report them. */
  running: Pick<RunningRequests, "list" | "stop">;
  /** Who may create projects: everyone, or only operators. */
  projectsCreatedBy: ProjectCreators;
  /** The models that keys may be limited to. */
  catalog: Catalog;
  /** The time zone of the days and months of budgets. */
  budgetZone: string;
  /** Why the current list of models is not in use; empty if it is. */
  listMistakes: () => readonly string[];
}

/** Who is signed in; set on every private route. */
export interface SignedIn {
  session: Session;
  account: Account;
  /**
   * Their membership in the project that the path names; null if it names none, or
   * without one.
   */
  membership: Membership | null;
}

/** The bindings and variables that Hono keeps for each request. */
export interface ConsoleEnv {
  /** The client's address, as the trusted proxies report it. */
  Bindings: { remoteIp: string };
  Variables: {
    deps: ConsoleDeps;
    /** 32 hexadecimal digits, in the answer and in the log. */
    requestId: string;
    /** The posted form, read once by the form guard. */
    form: URLSearchParams;
    /** The file of an upload. */
    file: File | undefined;
    /** Missing on routes that need no sign-in, until somebody looks it up. */
    signedIn: SignedIn;
  };
}

/** A request to the console while it is handled. */
export type ConsoleContext = Context<ConsoleEnv>;

/** A response, or a page to answer with. */
type Answer = Response | HtmlEscapedString;

/** Handles a request. Throws {@link Refused} if it cannot be granted. */
export type Handler = (c: ConsoleContext) => Answer | Promise<Answer>;

/** The handlers of a path by method. GET answers HEAD, too. */
interface RouteHandlers {
  GET?: Handler;
  POST?: Handler;
}

/** Handlers by path pattern: `/keys/:id`. */
export type Routes = Readonly<Record<string, RouteHandlers>>;

/** The address and the browser that a request came from. */
export const clientOf = (c: ConsoleContext): Client => ({
  ip: c.env.remoteIp,
  userAgent: c.req.header("user-agent") ?? "",
});

/** Who makes a change and from where, for the audit log. */
export const actorOf = (c: ConsoleContext): Actor => ({
  by: c.var.signedIn.account.email,
  ip: c.env.remoteIp,
});

/** The operator who changes something of another owner. */
export const operatorOf = (c: ConsoleContext): Operator => ({
  ...actorOf(c),
  ownerId: c.var.signedIn.session.ownerId,
});

interface RefusedOptions extends ErrorOptions {
  headers?: Readonly<Record<string, string>>;
  /**
   * Where the page's button leads; by default to the page of the key or owner, or to
   * the section.
   */
  back?: string;
}

/**
 * An expected refusal. It becomes a page with this status and message, a sentence
 * without its full stop.
 */
export class Refused extends Error {
  override name = "Refused";

  constructor(
    readonly status: ContentfulStatusCode,
    message: string,
    readonly options: RefusedOptions = {},
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
