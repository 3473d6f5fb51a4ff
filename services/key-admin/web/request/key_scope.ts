/** The account whose keys a page shows, and changes of them. */

import { isProjectId } from "@gateway/shared/keys/key";
import type { KeyRecord, Principal } from "@gateway/shared/keys/record";
import { z } from "zod";
import type { AuditAction } from "../../domain/audit/audit_log.ts";
import { KeyRefused } from "../../domain/keys/key_refused.ts";
import type { Target } from "../../domain/keys/key_store.ts";
import type { NamedAccount } from "../../domain/operators/people_rows.ts";
import type { Membership } from "../../domain/projects/project_record.ts";
import {
  actorOf,
  type ConsoleContext,
  operatorOf,
  Refused,
} from "../context.ts";
import { FORM } from "./forms.ts";

/** The prefix of the paths of one's own account. */
export const OWN_ROOT = "";
/** The prefix of the paths of a project. */
export const PROJECT_ROOT = "/projects/:project";
/** The pages of one's own keys. */
export const OWN_KEYS = "/keys";
/** The pages on which operators act on any key. */
export const KEYS_OF_OWNER = "/people/:owner/keys";

/** The account that the keys of a page belong to. */
export interface KeyScope {
  ownerId: string;
  /**
   * The prefix of the paths of its pages: empty, `/projects/prj_…`, or `/people/own_…`.
   */
  root: string;
  /**
   * The path of its keys: `/keys`, `/projects/prj_…/keys`, or `/people/own_…/keys` for
   * operators.
   */
  base: string;
  /** The project, for one of its members; null for any other account. */
  membership: Membership | null;
  /** Only keys that this owner created are there; undefined if all are. */
  createdBy: string | undefined;
  /** The account of somebody else, or a project; null for one's own. */
  other: NamedAccount | null;
}

/** The page on which operators see an account. */
export const operatorPath = (ownerId: string): string =>
  `/people/${isProjectId(ownerId) ? "projects/" : ""}${ownerId}`;

/** Returns the word of the reader of a page for the owner of the keys. */
export const whoseOf = (
  { membership, other }: Pick<KeyScope, "membership" | "other">,
): "own" | "project" | "other" =>
  other !== null ? "other" : membership === null ? "own" : "project";

/** The account that whoever has signed in acts for: a project that the path names. */
export function ownScopeOf(c: ConsoleContext): KeyScope {
  const { session, membership } = c.var.signedIn;
  const { id, role } = membership === null
    ? { id: session.ownerId, role: "admin" }
    : { id: membership.project.id, role: membership.role };
  const root = membership === null ? "" : `/projects/${id}`;
  return {
    ownerId: id,
    root,
    base: root + OWN_KEYS,
    membership,
    createdBy: role === "admin" ? undefined : session.ownerId,
    other: null,
  };
}

/** The account that the path names; without one, that of whoever has signed in. */
export async function keyScopeOf(c: ConsoleContext): Promise<KeyScope> {
  const { deps: { people }, signedIn: { session } } = c.var;
  const ownerId = c.req.param("owner");
  const own = ownScopeOf(c);
  if (ownerId === undefined) return own;
  const name = await people.name(ownerId);
  if (name === null) throw new Refused(404, "This account does not exist");
  const other = ownerId === session.ownerId ? null : { ownerId, name };
  const root = `/people/${ownerId}`;
  return { ...own, ownerId, root, base: root + OWN_KEYS, other };
}

/**
 * The key in the path. The keys of others do not exist (API1, ASVS 8.2.2): only routes
 * for operators name any account, and for a member of a project only the keys are there
 * that they created.
 */
export async function findKey(
  c: ConsoleContext,
  { ownerId, createdBy }: KeyScope,
): Promise<KeyRecord> {
  const key = await c.var.deps.keys.find(ownerId, c.req.param("id") ?? "");
  const isTheirs = createdBy === undefined || key.createdBy === createdBy;
  if (!isTheirs) throw new KeyRefused("not_found");
  return key;
}

/** The field for a reason: operators have to give one, owners have no such field. */
export const reasonIn = ({ other }: KeyScope) =>
  other === null ? z.undefined().optional() : FORM.shape.reason;

/** The fields of a form for a change. */
interface Change {
  /** The version of the key that the page showed. */
  version: number;
  /** The reason that an operator gave. */
  reason?: string | undefined;
}

/** The key in the path, for a change. */
export const targetOf = (
  c: ConsoleContext,
  { ownerId }: KeyScope,
  { version, reason }: Change,
): Target => ({
  ownerId,
  keyId: c.req.param("id") ?? "",
  version,
  actor: actorOf(c),
  reason,
});

/**
 * Stops the running requests of these keys. Returns false if that failed, which is
 * logged.
 */
export async function stopRequests(
  { var: { deps: { sendStop, log } } }: ConsoleContext,
  principals: readonly Principal[],
): Promise<boolean> {
  try {
    await sendStop(principals);
    return true;
  } catch (error) {
    const [{ ownerId, keyId } = {}] = principals;
    log.error("stop_notice_failed", { ownerId, keyId, error });
    return false;
  }
}

/**
 * Notes what an operator did to somebody else's key in the operator's own audit log;
 * that of the key's owner has it already.
 */
export async function noteForOperator(
  c: ConsoleContext,
  { other }: Pick<KeyScope, "other">,
  { action, key, reason = "" }: {
    action: AuditAction;
    key: Pick<KeyRecord, "id" | "hint" | "description">;
    reason?: string | undefined;
  },
): Promise<void> {
  if (other === null) return;
  await c.var.deps.operators.noteKey(operatorOf(c), other, {
    action,
    key,
    reason,
  });
}
