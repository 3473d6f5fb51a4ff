/** Pages of operators about projects: the list, and one project with its changes. */

import { usageDay } from "@gateway/shared/keys/limiter_state";
import { z } from "zod";
import {
  PROJECT_SORTS,
  type ProjectRow,
} from "../../../domain/operators/people_rows.ts";
import { runningKeys } from "../../../domain/operators/running_keys.ts";
import {
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm } from "../../request/forms.ts";
import { stopRequests } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Box, Field, PostForm, Table } from "../../view/parts.tsx";
import type { Column } from "../../view/sorting.tsx";
import { money, number, Time } from "../../view/texts.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";
import { accountLimits } from "../usage/limits_view.tsx";
import { choiceOf } from "../usage/usage_choice.tsx";
import { answerUsage } from "../usage/usage_page.tsx";
import { usageView } from "../usage/usage_view.tsx";
import { showView } from "../people/people_lists.tsx";
import { LIMITS_FORM, readLimits } from "../people/people_page.tsx";
import { memberForms, membersView, placeOf } from "./members_view.tsx";
import { askRemove, rename } from "./projects_page.tsx";

/** The columns of lists of projects; the cost where models have prices. */
const projectColumns = (
  c: ConsoleContext,
  used: string,
): Column<ProjectRow>[] => {
  const { id, currency } = c.var.deps.catalog.prices;
  return [
    [
      "Project",
      ({ project }) => (
        <a href={`/people/projects/${project.id}`} dir="auto">{project.name}</a>
      ),
      undefined,
      "name",
    ],
    [
      "Status",
      ({ project: { isDisabled } }) =>
        isDisabled
          ? <span class="badge bad">Disabled</span>
          : <span class="badge good">Active</span>,
      undefined,
      "status",
    ],
    [
      "Created",
      ({ project }) => <Time ms={project.createdAtMs} as="day" />,
      undefined,
      "created",
    ],
    ["Members", ({ members }) => number(members), "num", "members"],
    ["Keys", ({ keys }) => number(keys), "num", "keys"],
    [
      `Requests ${used}`,
      ({ totals }) => number(totals.requests),
      "num",
      "requests",
    ],
    [`Tokens ${used}`, ({ totals }) => number(totals.tokens), "num", "tokens"],
    ...(id === null ? [] : [`Cost ${used}`]).map((
      label,
    ): Column<ProjectRow> => [
      label,
      ({ totals }) => money(totals.cost, currency),
      "num",
      "cost",
    ]),
  ];
};

const listProjects: Handler = (c) => {
  const { people } = c.var.deps;
  return showView(c, {
    placeholder: "Part of a name",
    read: (query) => people.projects(query),
    columns: (used) => projectColumns(c, used),
    sorts: PROJECT_SORTS,
    none: {
      title: "No projects",
      lead:
        "The members of a project share its keys, its limits and its usage.",
    },
  });
};

async function findProject(c: ConsoleContext): Promise<ProjectRow> {
  const { people, now } = c.var.deps;
  const id = c.req.param("id") ?? "";
  const row = await people.findProject(id, usageDay(now()));
  if (row !== null) return row;
  throw new Refused(404, "This project does not exist");
}

const showProject: Handler = async (c) => await show(c);

async function show(
  c: ConsoleContext,
  values?: z.infer<typeof LIMITS_FORM>,
  error?: string,
) {
  const { deps } = c.var;
  const row = await findProject(c);
  const { id, name, isDisabled } = row.project;
  const place = placeOf(c);
  const { root } = place;
  const choice = choiceOf(c);
  return (
    <Page
      c={c}
      title={name}
      error={error ?? choice.error}
      actions={<a class="button" href={`/people/keys?search=${id}`}>Keys</a>}
    >
      <Table
        caption="Project"
        rows={[row]}
        columns={projectColumns(c, "today")}
      />
      {await membersView(c, place)}
      {await accountLimits(deps, id, {
        action: `${root}/limits`,
        texts: values,
        whose: "project",
        isOpen: error !== undefined,
      })}
      <section class="card">
        <h2>Project</h2>
        <PostForm action={`${root}/name`} submit="Rename" look="">
          <Field
            id="name"
            label="Name"
            value={name}
            dir="auto"
            required
            maxlength={200}
            autocomplete="off"
          />
        </PostForm>
        <StateForm root={root} isDisabled={isDisabled} />
      </section>
      {await usageView(deps, {
        ownerId: id,
        base: root,
        choice,
        keys: `/people/${id}/keys`,
        isProject: true,
      })}
    </Page>
  );
}

const StateForm = (
  { root, isDisabled }: { root: string; isDisabled: boolean },
) => {
  const title = isDisabled ? "Enable" : "Disable";
  return (
    <details>
      <summary>{title}</summary>
      <PostForm
        action={`${root}/state`}
        hidden={{ state: isDisabled ? "enabled" : "disabled" }}
        submit={title}
        look={isDisabled ? "primary" : "primary bad"}
      >
        <p class="lead">
          {isDisabled
            ? "The enabled keys of the project work again."
            : "Every request with one of the project's keys is refused from now on. Running requests finish, unless you stop them. Nothing is deleted; you can enable the project again at any time."}
        </p>
        {!isDisabled && (
          <Box name="stop_running">Also stop requests that are running now</Box>
        )}
      </PostForm>
    </details>
  );
};

const STATE_FORM = z.strictObject({
  state: z.enum(["enabled", "disabled"]),
  stop_running: FORM.shape.stop_running,
});

const setState: Handler = async (c) => {
  const { id, root, actor } = placeOf(c);
  const { state, stop_running: stops } = parseForm(c, STATE_FORM);
  const { projects, redis } = c.var.deps;
  await projects.setState(actor, id, state);
  const isStopped = state === "enabled" || !stops ||
    await stopRequests(c, await runningKeys(redis, id));
  const done = isStopped ? "project_changed" : "not_stopped";
  return c.redirect(`${root}?done=${done}`, 303);
};

const setLimits: Handler = async (c) => {
  const { id, root, actor } = placeOf(c);
  const { values, limits, error } = readLimits(c);
  if (limits === undefined) return await show(c, values, error);
  await c.var.deps.projects.setLimits(actor, id, limits);
  return c.redirect(`${root}?done=project_changed`, 303);
};

const exportUsage: Handler = async (c) => {
  const { project: { id: ownerId } } = await findProject(c);
  return answerUsage(c, { ownerId });
};

const ROOT = "/people/projects/:id";
const members = memberForms(ROOT);

/** The routes of projects for operators. */
export const operatorProjectRoutes: Routes = {
  "/people/projects": { GET: listProjects },
  [ROOT]: { GET: showProject },
  ...members,
  [`${ROOT}/members/remove`]: {
    GET: askRemove,
    ...members[`${ROOT}/members/remove`],
  },
  [`${ROOT}/name`]: { POST: rename },
  [`${ROOT}/limits`]: { POST: behindPassword(setLimits) },
  [`${ROOT}/state`]: { POST: behindPassword(setState) },
  [`${ROOT}/export.csv`]: { GET: exportUsage },
};
