/** A project as Redis keeps it: an account with several members. */
import type { KeyState, Limits } from "@gateway/shared/keys/record";
import { z } from "zod";
import type { AuditAction } from "../audit/audit_log.ts";
import { lineOfText } from "../keys/settings.ts";
import type { Fields } from "../store/redis.ts";

/**
 * The roles of members. An admin changes the members and all keys; a member creates
 * keys, sees and changes those, and sees the usage of the project.
 */
export const ROLES = ["admin", "member"] as const;
/** A member of {@link ROLES}. */
export type Role = typeof ROLES[number];

/** Who may create projects. */
export const PROJECT_CREATORS = ["operators", "everyone"] as const;
/** A member of {@link PROJECT_CREATORS}. */
export type ProjectCreators = typeof PROJECT_CREATORS[number];

/** A project. Its keys are those of the account with its id. */
export interface Project {
  /** `prj_` and 20 base62 characters. */
  id: string;
  name: string;
  createdAtMs: number;
  /**
   * Whether an operator has disabled it: then every request with one of its keys is
   * refused.
   */
  isDisabled: boolean;
}

/** The membership of a person in a project. */
export interface Membership {
  project: Project;
  role: Role;
}

/** A person in the list of members. */
export interface Member {
  ownerId: string;
  role: Role;
}

/** What a project is to be like, and the version that this is based on. */
export interface ProjectUpdate {
  readonly name?: string | undefined;
  /** Those that are not stated stay as they are. */
  readonly limits?: Partial<Limits> | undefined;
  readonly state?: KeyState | undefined;
  /** Null or none: any. */
  readonly version?: number | null;
}

/** What the audit log says of a change, without who made it. */
export interface ProjectNote {
  action: AuditAction;
  detail: string;
}

/** One change of who belongs to a project. */
export interface MemberChange {
  action: AuditAction;
  memberId: string;
  /** The new role; empty: no member any more. */
  role: Role | "";
  /** Whether the person must not be, rather than be, a member before. */
  isNew: boolean;
}

/** How many members a project may have, and how many projects there are at most. */
export const PROJECT_LIMITS = {
  /** Members of a project: all are read for one page. A further one is refused. */
  membersMax: 1_000,
  /**
   * Projects of one person, which are in the menu of each page. A further one is
   * refused.
   */
  projectsPerOwnerMax: 100,
  /** The newest projects, which operators see and search, as with owners. */
  listedMax: 10_000,
} as const;

/** The name of a project, as forms and the command line take it. */
export const projectName = lineOfText("Say what the project is called");

const role = z.enum(ROLES);
/** Reads a role as Redis keeps it; null for somebody who is no member. */
export const readRole = (reply: unknown): Role | null =>
  role.nullable().parse(reply);

const stored = z.object({ name: z.string(), created_at: z.coerce.number() });

/** The project in the fields of `proj:{project}`; `state` is that of its account. */
export function decodeProject(
  id: string,
  { fields, state }: { fields: Fields; state: unknown },
): Project {
  const { name, created_at: createdAtMs } = stored.parse(fields);
  return { id, name, createdAtMs, isDisabled: state === "disabled" };
}

/** The members in the fields of `members:{project}`: admins first, then by id. */
export const decodeMembers = (fields: Fields): Member[] =>
  Object.entries(fields)
    .map(([ownerId, text]) => ({ ownerId, role: role.parse(text) }))
    .sort((a, b) =>
      ROLES.indexOf(a.role) - ROLES.indexOf(b.role) ||
      (a.ownerId < b.ownerId ? -1 : 1)
    );
