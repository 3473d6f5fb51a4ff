/** Pages of projects for their members: the list, the forms, and the members of one. */

import { z } from "zod";
import { parseEmail } from "../../../domain/owners/email.ts";
import {
  type Membership,
  projectName,
} from "../../../domain/projects/project_record.ts";
import { ProjectRefused } from "../../../domain/projects/project_refused.ts";
import { digest, mintSecret } from "../../../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm, text } from "../../request/forms.ts";
import { PROJECT_ROOT } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Field, PostForm, Table } from "../../view/parts.tsx";
import { labelOf, Time } from "../../view/texts.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";
import {
  memberForms,
  membersView,
  NAME_FORM,
  placeOf,
} from "./members_view.tsx";

/** Whether whoever has signed in may create projects. */
const mayCreate = ({ var: { deps, signedIn } }: ConsoleContext): boolean =>
  signedIn.account.isOperator || deps.projectsCreatedBy === "everyone";

const listProjects: Handler = async (c) => {
  const { projects } = c.var.deps;
  const create = mayCreate(c) && (
    <a class="button primary" href="/projects/new">Create project</a>
  );
  return (
    <Page
      c={c}
      title="Projects"
      lead="The members of a project share its keys, its limits and its usage. A key stays when the person who created it leaves."
      actions={create}
    >
      <Table
        caption="Your projects"
        rows={await projects.membershipsOf(c.var.signedIn.session.ownerId)}
        empty={{
          title: "No projects",
          lead: mayCreate(c)
            ? "You are not a member of a project yet."
            : "You are not a member of a project yet. Operators create projects, and their admins add members.",
        }}
        columns={[
          [
            "Project",
            ({ project: { id, name } }) => (
              <a href={`/projects/${id}/keys`} dir="auto">{name}</a>
            ),
          ],
          ["Your role", ({ role }: Membership) => labelOf(role)],
          ["Status", ({ project: { isDisabled } }) =>
            isDisabled
              ? <span class="badge bad">Disabled</span>
              : <span class="badge good">Active</span>],
          [
            "Created",
            ({ project }) => <Time ms={project.createdAtMs} as="day" />,
          ],
        ]}
      />
    </Page>
  );
};

const NEW_PROJECT = z.strictObject({
  name: text(1_000),
  nonce: FORM.shape.nonce,
  /** The address of the first admin; only operators name one. */
  admin: FORM.shape.email.optional(),
});

const newProject: Handler = (c) => {
  const nonce = mintSecret(c.var.deps.randomBytes);
  return showNew(c, { name: "", nonce });
};

const createProject: Handler = async (c) => {
  const { projects, owners } = c.var.deps;
  const { session, account } = c.var.signedIn;
  if (!mayCreate(c)) throw new Refused(404, "This page does not exist");
  const form = parseForm(c, NEW_PROJECT);
  const { data: name, error } = projectName.safeParse(form.name);
  if (error) return showNew(c, { ...form, error: error.issues[0]?.message });
  let adminId: string | null = session.ownerId;
  if (account.isOperator && form.admin !== undefined) {
    adminId = await owners.find(parseEmail(form.admin) ?? "");
    if (adminId === null) throw new ProjectRefused("no_such_owner");
  }
  const actor = {
    ...actorOf(c),
    ownerId: session.ownerId,
    as: "member",
  } as const;
  const once = digest(form.nonce);
  const { id } = await projects.create(actor, { name, adminId, once });
  const place = adminId === session.ownerId
    ? `/projects/${id}/members`
    : `/people/projects/${id}`;
  return c.redirect(place, 303);
};

function showNew(
  c: ConsoleContext,
  { name, nonce, error }: {
    name: string;
    nonce: string;
    error?: string | undefined;
  },
) {
  if (!mayCreate(c)) throw new Refused(404, "This page does not exist");
  const { account } = c.var.signedIn;
  return (
    <Page
      c={c}
      title="Create project"
      lead="An admin of the project adds its members and changes all of its keys."
      error={error && "Correct the marked fields."}
      isCard
    >
      <PostForm
        action="/projects/new"
        hidden={{ nonce }}
        submit="Create project"
        cancel="/projects"
      >
        <Field
          id="name"
          label="Name"
          value={name}
          error={error}
          dir="auto"
          required
          maxlength={200}
          autocomplete="off"
          autofocus
        />
        {account.isOperator && (
          <Field
            id="admin"
            label="First admin"
            type="email"
            value={account.email}
            required
            autocomplete="off"
            help="The e-mail address of somebody who has an account."
          />
        )}
      </PostForm>
    </Page>
  );
}

/** The members of the project, for one of them. */
const showMembers: Handler = async (c) => {
  const place = placeOf(c);
  const { membership } = c.var.signedIn;
  return (
    <Page
      c={c}
      title={`Members of ${membership?.project.name}`}
      lead="Admins change the members and all keys. Members create keys and change those."
    >
      {await membersView(c, place)}
      {place.isAdmin && (
        <section class="card">
          <h2>Name of the project</h2>
          <PostForm action={`${place.root}/name`} submit="Rename" look="">
            <Field
              id="name"
              label="Name"
              value={membership?.project.name}
              dir="auto"
              required
              maxlength={200}
              autocomplete="off"
            />
          </PostForm>
        </section>
      )}
    </Page>
  );
};

/** Gives a project another name. */
export const rename: Handler = async (c) => {
  const { id, root, actor } = placeOf(c);
  const form = parseForm(c, NAME_FORM);
  const { data: name, error } = projectName.safeParse(form.name);
  if (error) throw new Refused(400, `Name: ${error.issues[0]?.message}`);
  await c.var.deps.projects.rename(actor, id, name);
  return c.redirect(
    actor.as === "member"
      ? `${root}/members?done=project_renamed`
      : `${root}?done=project_changed`,
    303,
  );
};

/** Asks before somebody is removed, or leaves. */
export const askRemove: Handler = async (c) => {
  const { id, root, actor } = placeOf(c);
  const { projects, people } = c.var.deps;
  const wanted = c.req.query("member") ?? "";
  const member = (await projects.members(id))
    .find(({ ownerId }) => ownerId === wanted);
  if (member === undefined) throw new ProjectRefused("not_member");
  const isSelf = actor.as === "member" && actor.ownerId === wanted;
  const name = await people.name(wanted) ?? wanted;
  const back = actor.as === "member" ? `${root}/members` : root;
  return (
    <Page
      c={c}
      title={isSelf ? "Leave this project?" : `Remove ${name}?`}
      lead={isSelf
        ? "You can do nothing with the project as soon as you confirm. The keys that you created stay."
        : "They can do nothing with the project as soon as you confirm. The keys that they created stay and go on working: rotate or disable those whose value they know."}
      isCard
    >
      <PostForm
        action={`${root}/members/remove`}
        hidden={{ member: wanted }}
        submit={isSelf ? "Leave project" : "Remove member"}
        look="primary bad"
        cancel={back}
      />
    </Page>
  );
};

const members = memberForms(PROJECT_ROOT);

/** The routes of projects for their members. */
export const projectRoutes: Routes = {
  "/projects": { GET: listProjects },
  "/projects/new": { GET: newProject, POST: behindPassword(createProject) },
  ...members,
  [PROJECT_ROOT]: {
    GET: (c) => c.redirect(`/projects/${c.req.param("project")}/keys`, 302),
  },
  [`${PROJECT_ROOT}/members`]: {
    GET: showMembers,
    ...members[`${PROJECT_ROOT}/members`],
  },
  [`${PROJECT_ROOT}/members/remove`]: {
    GET: askRemove,
    ...members[`${PROJECT_ROOT}/members/remove`],
  },
  [`${PROJECT_ROOT}/name`]: { POST: rename },
};
