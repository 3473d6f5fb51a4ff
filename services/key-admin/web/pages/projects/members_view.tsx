/** The members of a project: the list, and the forms that change it. */

import { z } from "zod";
import {
  type Member,
  type Role,
  ROLES,
} from "../../../domain/projects/project_record.ts";
import type { ProjectActor } from "../../../domain/projects/project_store.ts";
import { parseEmail } from "../../../domain/owners/email.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm, text } from "../../request/forms.ts";
import { Field, PostForm, Table } from "../../view/parts.tsx";
import { Email, labelOf } from "../../view/texts.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";

/** A project on a page: of one of its members, or of an operator. */
export interface ProjectPlace {
  id: string;
  /** The prefix of the addresses of its forms. */
  root: string;
  actor: ProjectActor;
  /** Whether whoever has signed in may change it. */
  isAdmin: boolean;
}

/** The project that the path names, for a member or an operator. */
export function placeOf(c: ConsoleContext): ProjectPlace {
  const { session, membership } = c.var.signedIn;
  const who = { ...actorOf(c), ownerId: session.ownerId };
  if (membership !== null) {
    const { project: { id }, role } = membership;
    const actor: ProjectActor = { ...who, as: "member" };
    const root = `/projects/${id}`;
    return { id, root, actor, isAdmin: role === "admin" };
  }
  const id = c.req.param("id") ?? "";
  const actor: ProjectActor = { ...who, as: "operator" };
  return { id, root: `/people/projects/${id}`, actor, isAdmin: true };
}

/** A member with the address that people know. */
interface NamedMember extends Member {
  email: string;
}

/** The members, and how an admin or an operator changes them. */
export async function membersView(
  c: ConsoleContext,
  { id, root, isAdmin }: ProjectPlace,
) {
  const { projects, people } = c.var.deps;
  const { ownerId: self } = c.var.signedIn.session;
  const members = await Promise.all(
    (await projects.members(id)).map(async (member): Promise<NamedMember> => ({
      ...member,
      email: await people.name(member.ownerId) || "First owner",
    })),
  );
  const isMember = c.var.signedIn.membership !== null;
  return (
    <>
      <Table
        caption="Members, admins first"
        rows={members}
        empty={{
          title: "No members",
          lead: "Nobody can act for this project until somebody is added.",
        }}
        columns={[
          ["Member", ({ email }) => <Email>{email}</Email>],
          ["Role", ({ role }) => <span class="badge">{labelOf(role)}</span>],
          [
            "Change",
            (member) =>
              (isAdmin || member.ownerId === self) && (
                <div class="row">
                  {isAdmin && roleForm(member, root)}
                  {isAdmin && isMember && (
                    <a
                      class="button small"
                      href={`${root}/keys?by=${member.ownerId}`}
                    >
                      Keys <span class="hidden">of {member.email}</span>
                    </a>
                  )}
                  {removeLink(member, { root, self: isMember ? self : "" })}
                </div>
              ),
          ],
        ]}
      />
      {isAdmin && (
        <section class="card">
          <h2>Add a member</h2>
          <PostForm action={`${root}/members`} submit="Add member" look="">
            <div class="pair roomy">
              <Field
                id="email"
                label="E-mail"
                type="email"
                required
                autocomplete="off"
                help="Somebody who has an account. An operator invites people."
              />
              <Field id="role" label="Role" options={ROLE_OPTIONS} />
            </div>
          </PostForm>
        </section>
      )}
    </>
  );
}

const ROLE_OPTIONS = ROLES.toReversed()
  .map((role) => [role, labelOf(role)] as const);

/** Gives a member the other role. */
function roleForm({ ownerId, role, email }: NamedMember, root: string) {
  const other: Role = role === "admin" ? "member" : "admin";
  return (
    <PostForm
      action={`${root}/members/role`}
      hidden={{ member: ownerId, role: other }}
      submit={
        <>
          Make {other} <span class="hidden">of {email}</span>
        </>
      }
      look="small"
    />
  );
}

const removeLink = (
  { ownerId, email }: NamedMember,
  { root, self }: { root: string; self: string },
) => (
  <a class="button small bad" href={`${root}/members/remove?member=${ownerId}`}>
    {ownerId === self ? "Leave" : (
      <>
        Remove <span class="hidden">{email}</span>
      </>
    )}
  </a>
);

const MEMBER_FORM = z.strictObject({
  member: z.string().regex(/^own_[0-9A-Za-z]{20}$/),
});
const ROLE_FORM = MEMBER_FORM.extend({ role: z.enum(ROLES) });
const ADD_FORM = z.strictObject({
  email: FORM.shape.email,
  role: z.enum(ROLES),
});
/** The form that renames a project. */
export const NAME_FORM = z.strictObject({ name: text(1_000) });

const back = (c: ConsoleContext, { root, actor }: ProjectPlace) =>
  c.redirect(
    actor.as === "member"
      ? `${root}/members?done=member_changed`
      : `${root}?done=project_changed`,
    303,
  );

const add: Handler = async (c) => {
  const place = placeOf(c);
  const { email: typed, role } = parseForm(c, ADD_FORM);
  const email = parseEmail(typed);
  if (email === null) throw new Refused(400, "This is not an e-mail address");
  await c.var.deps.projects.add(place.actor, place.id, { email, role });
  return back(c, place);
};

const setRole: Handler = async (c) => {
  const place = placeOf(c);
  const { member: memberId, role } = parseForm(c, ROLE_FORM);
  const { projects } = c.var.deps;
  await projects.setRole(place.actor, place.id, { memberId, role });
  return back(c, place);
};

const remove: Handler = async (c) => {
  const place = placeOf(c);
  const { member } = parseForm(c, MEMBER_FORM);
  const { projects } = c.var.deps;
  await projects.remove(place.actor, place.id, member);
  const isGone = place.actor.as === "member" &&
    member === place.actor.ownerId;
  return isGone
    ? c.redirect("/projects?done=member_left", 303)
    : back(c, place);
};

/** The forms that change the members, on the pages of a project below this path. */
export const memberForms = (root: string): Routes => ({
  [`${root}/members`]: { POST: behindPassword(add) },
  [`${root}/members/role`]: { POST: behindPassword(setRole) },
  [`${root}/members/remove`]: { POST: behindPassword(remove) },
});
