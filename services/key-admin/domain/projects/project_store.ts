/** The projects in Redis, and everything that can happen to their members. */
import { defined } from "@gateway/shared/process/env";
import pLimit from "p-limit";
import { isProjectId, mintProjectId } from "@gateway/shared/keys/key";
import {
  auditKey,
  KEY_FIELDS,
  type KeyState,
  type Limits,
  ownerLimitsKey,
} from "@gateway/shared/keys/record";
import {
  defineScript,
  type RedisLink,
  type RedisScript,
} from "@gateway/shared/redis/link";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditLog,
  encodeAudit,
} from "../audit/audit_log.ts";
import { describeLimits, encodeKey } from "../keys/key_record.ts";
import { AccountChanged } from "../audit/record_change.ts";
import type { OwnerStore, OwnerStoreDeps } from "../owners/owner_store.ts";
import { createPersist } from "../store/durability.ts";
import { asNumber, asTexts, readHash } from "../store/redis.ts";
import changeMemberLua from "./lua/change_member.lua" with { type: "text" };
import createProjectLua from "./lua/create_project.lua" with { type: "text" };
import {
  decodeMembers,
  decodeProject,
  type Member,
  type MemberChange,
  type Membership,
  type Project,
  PROJECT_LIMITS,
  type ProjectNote,
  type ProjectUpdate,
  readRole,
  type Role,
} from "./project_record.ts";
import { projectRefusal, ProjectRefused } from "./project_refused.ts";

const projectKey = (id: string) => `proj:{${id}}`;
const membersKey = (id: string) => `members:{${id}}`;
/** The projects of an owner, by when they joined. `members:{project}` decides. */
const joinedKey = (ownerId: string) => `joined:{${ownerId}}`;
/** Sorted set of the ids of all projects by their time of creation. */
const PROJECTS_KEY = "projects";
const READ_AT_ONCE = 100;
/** A form sent twice within this time creates one project. */
const ONCE_SECONDS = "86400";

const CREATE_SCRIPT = defineScript(
  "key-admin/create_project",
  createProjectLua,
);
const MEMBER_SCRIPT = defineScript(
  "key-admin/change_member",
  changeMemberLua,
  { MEMBERS_MAX: PROJECT_LIMITS.membersMax, AUDIT_ENTRIES_MAX },
);

/** The actor of a change of a project: a member, whose role counts, or an operator. */
export interface ProjectActor extends Actor {
  /** Null for the command line. */
  ownerId: string | null;
  as: "member" | "operator";
}

/** Dependencies of a {@link ProjectStore}. */
export interface ProjectStoreDeps extends OwnerStoreDeps {
  owners: Pick<
    OwnerStore,
    "find" | "read" | "standing" | "change"
  >;
  audit: Pick<AuditLog, "add">;
}

/** What a project begins with. */
export interface NewProject {
  name: string;
  /** The id of the first admin; null if an operator names one later. */
  adminId: string | null;
  /** Digest of the form's nonce: a second project with the same one is refused. */
  once?: string;
}

/**
 * Projects and memberships. Each change is durable like one of a key, and in the audit
 * logs of the project, of the person and of the operator who made it. A refused change
 * throws {@link ProjectRefused}.
 * The projects of a person are an index in another slot, which is written before a
 * membership and removed after it: it may name projects that the person does not belong
 * to, so every reader asks the project.
 */
export class ProjectStore {
  readonly #deps: ProjectStoreDeps;
  readonly #redis: RedisLink;
  readonly #writer: RedisLink;
  readonly #persist: () => Promise<void>;

  constructor(deps: ProjectStoreDeps) {
    this.#deps = deps;
    this.#redis = deps.redis;
    this.#writer = deps.writer;
    this.#persist = createPersist(deps.writer);
  }

  /** The project of this id; null if there is none. */
  async read(id: string): Promise<Project | null> {
    if (!isProjectId(id)) return null;
    const [fields, state] = await Promise.all([
      readHash(this.#redis, projectKey(id)),
      this.#redis.command(["HGET", ownerLimitsKey(id), KEY_FIELDS.state]),
    ]);
    return fields && decodeProject(id, { fields, state });
  }

  /** Returns the membership of an owner in a project; null without one. */
  async membership(id: string, ownerId: string): Promise<Membership | null> {
    if (!isProjectId(id)) return null;
    const [project, reply] = await Promise.all([
      this.read(id),
      this.#redis.command(["HGET", membersKey(id), ownerId]),
    ]);
    const role = readRole(reply);
    return project && role && { project, role };
  }

  /** The projects of an owner, by when they joined. */
  async membershipsOf(ownerId: string): Promise<Membership[]> {
    const joined = ["ZRANGE", joinedKey(ownerId), "0", "-1"];
    const ids = asTexts(await this.#redis.command(joined));
    const all = await Promise.all(
      ids.map((id) => this.membership(id, ownerId)),
    );
    return all.filter((membership) => membership !== null);
  }

  /** The ids of the newest projects, newest first. */
  async ids(): Promise<string[]> {
    const last = String(PROJECT_LIMITS.listedMax - 1);
    const newest = ["ZREVRANGE", PROJECTS_KEY, "0", last];
    return asTexts(await this.#redis.command(newest));
  }

  /** The projects with this id or name. */
  async named(text: string): Promise<Project[]> {
    const project = await this.read(text);
    if (project !== null) return [project];
    const atOnce = pLimit(READ_AT_ONCE);
    const all = await atOnce.map(await this.ids(), (id) => this.read(id));
    return all.filter((each) => each !== null)
      .filter(({ name }) => name === text);
  }

  /** The members of a project, admins first. */
  async members(id: string): Promise<Member[]> {
    return decodeMembers(await readHash(this.#redis, membersKey(id)) ?? {});
  }

  /** Creates a project, with the default limits of new owners. */
  async create(
    actor: ProjectActor,
    { name, adminId, once }: NewProject,
  ): Promise<Project> {
    const { randomBytes, now, defaultLimits } = this.#deps;
    const id = mintProjectId(randomBytes);
    if (adminId !== null) await this.#checkMayJoin(adminId);
    if (once !== undefined) await this.#takeOnce(actor, once);
    if (adminId !== null) await this.#join(adminId, id);
    const nowMs = now();
    const entry = { action: "project.created", detail: name } as const;
    const { by, ip } = actor;
    await this.#eval(CREATE_SCRIPT, {
      keys: [projectKey(id), ownerLimitsKey(id), membersKey(id), auditKey(id)],
      plan: {
        project: ["name", name, "created_at", String(nowMs)],
        limits: encodeKey({ limits: defaultLimits.owner }),
        adminId: adminId ?? "",
        audit: encodeAudit({ ...entry, by, ip }),
      },
    });
    await this.#writer.command(["ZADD", PROJECTS_KEY, String(nowMs), id]);
    await this.#persist();
    for (const ownerId of new Set([adminId, actor.ownerId])) {
      await this.#note(actor, entry, ownerId);
    }
    return { id, name, createdAtMs: nowMs, isDisabled: false };
  }

  /** Makes the owner of an address a member. */
  async add(
    actor: ProjectActor,
    id: string,
    { email, role }: { email: string; role: Role },
  ): Promise<void> {
    const { owners } = this.#deps;
    await this.#checkAdmin(actor, id);
    const memberId = await owners.find(email);
    const account = memberId === null ? null : await owners.read(memberId);
    if (account === null) throw new ProjectRefused("no_such_owner");
    if (account.isDisabled) throw new ProjectRefused("owner_disabled");
    await this.addOwner(actor, id, { memberId: account.ownerId, role });
  }

  /** Makes an owner a member. */
  async addOwner(
    actor: ProjectActor,
    id: string,
    { memberId, role }: { memberId: string; role: Role },
  ): Promise<void> {
    await this.#checkAdmin(actor, id);
    await this.#checkMayJoin(memberId);
    await this.#join(memberId, id);
    const action = "project.member_added";
    await this.#change(actor, id, { action, memberId, role, isNew: true });
  }

  /** Gives a member another role. */
  async setRole(
    actor: ProjectActor,
    id: string,
    { memberId, role }: { memberId: string; role: Role },
  ): Promise<void> {
    const action = "project.role_changed";
    await this.#change(actor, id, { action, memberId, role, isNew: false });
  }

  /**
   * Ends a membership, also one's own. The keys that the person created stay with the
   * project.
   */
  async remove(
    actor: ProjectActor,
    id: string,
    memberId: string,
  ): Promise<void> {
    const action = "project.member_removed";
    const change = { action, memberId, role: "", isNew: false } as const;
    await this.#change(actor, id, change);
    await this.#writer.command(["ZREM", joinedKey(memberId), id]);
  }

  /** Gives a project another name. */
  async rename(actor: ProjectActor, id: string, name: string): Promise<void> {
    await this.update(actor, id, { name });
  }

  /** Sets the limits over all keys of a project, for operators. */
  async setLimits(
    operator: ProjectActor,
    id: string,
    limits: Limits,
  ): Promise<void> {
    await this.update(operator, id, { limits });
  }

  /**
   * Disables or enables a project, for operators: while `disabled`, every request with
   * one of its keys is refused.
   */
  async setState(
    operator: ProjectActor,
    id: string,
    state: KeyState,
  ): Promise<void> {
    await this.update(operator, id, { state });
  }

  /**
   * Makes a project what is stated, all or nothing; what is so already is no change.
   * Throws `AccountChanged` if it has another version than the one that is stated.
   */
  async update(
    actor: ProjectActor,
    id: string,
    { version = null, name, limits, state }: ProjectUpdate,
  ): Promise<void> {
    const { owners } = this.#deps;
    await this.#checkAdmin(actor, id);
    const before = await this.#find(id);
    const standing = await owners.standing(id);
    const notes: ProjectNote[] = [];
    if (name !== undefined && name !== before.name) {
      const detail = [before.name, name].map((each) => JSON.stringify(each));
      notes.push({ action: "project.renamed", detail: detail.join(" → ") });
    }
    const merged = { ...standing.limits, ...limits };
    const detail = describeLimits(standing.limits, merged);
    if (detail !== "") notes.push({ action: "project.limits_changed", detail });
    if (state !== undefined && state !== standing.state) {
      notes.push({ action: `project.${state}`, detail: "" });
    }
    if (notes.length === 0) {
      if (version === null || version === standing.version) return;
      throw new AccountChanged();
    }
    const { by, ip } = actor;
    const named = name === undefined ? [] : ["name", name];
    const isThere = await owners.change(id, defined({ limits, state }), {
      version,
      entries: notes.map((note) => ({ by, ip, ...note })),
      beside: { key: projectKey(id), fields: named },
    });
    if (!isThere) throw new ProjectRefused("not_found");
    if (actor.as !== "operator") return;
    for (const note of notes) {
      const title = name ?? before.name;
      const whole = note.detail === "" ? title : `${title}: ${note.detail}`;
      await this.#note(actor, { ...note, detail: whole }, actor.ownerId);
    }
  }

  async #find(id: string): Promise<Project> {
    const project = await this.read(id);
    if (project === null) throw new ProjectRefused("not_found");
    return project;
  }

  async #checkAdmin(
    { as, ownerId }: ProjectActor,
    id: string,
  ): Promise<void> {
    if (as === "operator") return;
    const membership = await this.membership(id, ownerId ?? "");
    if (membership === null) throw new ProjectRefused("not_found");
    if (membership.role !== "admin") throw new ProjectRefused("not_admin");
  }

  async #checkMayJoin(ownerId: string): Promise<void> {
    const count = await this.#redis.command(["ZCARD", joinedKey(ownerId)]);
    if (asNumber(count) >= PROJECT_LIMITS.projectsPerOwnerMax) {
      throw new ProjectRefused("too_many_projects");
    }
  }

  async #join(ownerId: string, id: string): Promise<void> {
    const time = String(this.#deps.now());
    await this.#writer.command(["ZADD", joinedKey(ownerId), "NX", time, id]);
  }

  async #takeOnce({ ownerId }: ProjectActor, once: string): Promise<void> {
    const set = ["SET", `once:{${ownerId ?? "projects"}}:${once}`, "1", "NX"];
    const isFirst = await this.#writer.command([...set, "EX", ONCE_SECONDS]);
    if (isFirst === null) throw new ProjectRefused("already_made");
  }

  async #change(
    actor: ProjectActor,
    id: string,
    { action, memberId, role, isNew }: MemberChange,
  ): Promise<void> {
    const project = await this.#find(id);
    const { by, ip, as, ownerId } = actor;
    const email = (await this.#deps.owners.read(memberId))?.email ?? memberId;
    const detail = role === "" ? email : `${email}: ${role}`;
    const result = await this.#eval(MEMBER_SCRIPT, {
      keys: [projectKey(id), membersKey(id), auditKey(id)],
      plan: {
        memberId,
        role,
        byId: as === "operator" ? "" : ownerId ?? "-",
        isNew,
        audit: encodeAudit({ action, by, ip, detail }),
      },
    });
    if (result === "same") return;
    if (result !== "done") {
      throw new ProjectRefused(projectRefusal.parse(result));
    }
    await this.#persist();
    const own = role === "" ? project.name : `${project.name}: ${role}`;
    await this.#deps.audit.add(memberId, { action, by, ip, detail: own });
    const others = as === "operator" && memberId !== ownerId ? ownerId : null;
    const whole = { action, detail: `${project.name}: ${detail}` };
    await this.#note(actor, whole, others);
  }

  /** Notes what happened in somebody's own log; null: in nobody's. */
  async #note(
    { by, ip }: ProjectActor,
    { action, detail }: ProjectNote,
    ownerId: string | null,
  ): Promise<void> {
    if (ownerId === null) return;
    await this.#deps.audit.add(ownerId, { action, by, ip, detail });
  }

  async #eval(
    script: RedisScript,
    { keys, plan }: { keys: string[]; plan: Record<string, unknown> },
  ): Promise<unknown> {
    const args = [JSON.stringify(plan)];
    return await this.#writer.evalScript(script, { keys, args });
  }
}
