/** The console: its routes, and the guards that every request passes. */
import { Hono } from "hono";
import { createAdminApi } from "./api/admin_api.ts";
import type { AdminDeps } from "./api/route.ts";
import { accountRoutes } from "./web/pages/account/account_page.tsx";
import { auditRoutes } from "./web/pages/audit_page.tsx";
import {
  type ConsoleDeps,
  type ConsoleEnv,
  type Handler,
  Refused,
  type Routes,
  type SignedIn,
} from "./web/context.ts";
import { formGuard } from "./web/request/forms.ts";
import { baseHeaders, checkHost, checkNoKey, checkSite } from "./web/guards.ts";
import {
  keyFormRoutes,
  operatorKeyFormRoutes,
} from "./web/pages/keys/key_form.tsx";
import { defaultRoutes } from "./web/pages/keys/defaults_page.tsx";
import { keyRoutes, operatorKeyRoutes } from "./web/pages/keys/keys_page.tsx";
import { keyListRoutes } from "./web/pages/keys/keys_list.tsx";
import {
  operatorSelectedRoutes,
  selectedRoutes,
} from "./web/pages/keys/keys_selected.tsx";
import { OWN_ROOT, PROJECT_ROOT } from "./web/request/key_scope.ts";
import { operatorProjectRoutes } from "./web/pages/projects/operator_projects_page.tsx";
import { projectRoutes } from "./web/pages/projects/projects_page.tsx";
import { modelRoutes } from "./web/pages/models/models_page.tsx";
import {
  behindSignIn,
  forOperators,
  recognize,
} from "./web/request/session.ts";
import { signInRoutes } from "./web/pages/account/sign_in_page.tsx";
import { referenceRoutes } from "./web/pages/reference_page.tsx";
import { runbookRoutes } from "./web/pages/runbooks_page.tsx";
import { tryRoutes } from "./web/pages/try/try_page.tsx";
import { adminKeyRoutes } from "./web/pages/people/admin_keys_page.tsx";
import { peopleRoutes } from "./web/pages/people/people_page.tsx";
import {
  operatorRequestRoutes,
  requestRoutes,
} from "./web/pages/usage/requests_page.tsx";
import {
  operatorRunningRoutes,
  runningRoutes,
} from "./web/pages/running/running_page.tsx";
import {
  operatorUsageRoutes,
  usageRoutes,
} from "./web/pages/usage/usage_page.tsx";
import { answering, asRefused, refuse } from "./web/pages/refusals.tsx";

/** The console's own files. Their paths contain a digest of the content. */
const asset: Handler = (c) => {
  const file = c.var.deps.assets.files.get(c.req.path);
  if (file === undefined) throw new Refused(404, "This file does not exist");
  return c.body(file.body, 200, {
    "content-type": file.type,
    "cache-control": "public, max-age=31536000, immutable",
  });
};

/** Routes that need no sign-in. Every other route is private. */
const PUBLIC_ROUTES: Routes = {
  "/": { GET: (c) => c.redirect("/keys", 302) },
  "/assets/:version/:name": { GET: asset },
  ...referenceRoutes,
  ...runbookRoutes,
  ...signInRoutes,
};

/** The pages of an account: one's own, or a project. */
const routesOf = (root: string): Routes => ({
  ...keyFormRoutes(root),
  ...selectedRoutes(root),
  ...defaultRoutes(root),
  ...keyListRoutes(root),
  ...keyRoutes(root),
  ...tryRoutes(root),
  ...usageRoutes(root),
  ...runningRoutes(root),
  ...requestRoutes(root),
  ...auditRoutes(root),
});

/** If two routes match, the first one answers. */
const ROUTES: Routes = {
  ...routesOf(OWN_ROOT),
  ...routesOf(PROJECT_ROOT),
  ...projectRoutes,
  ...accountRoutes,
};

/** Routes that exist only for operators. */
const OPERATOR_ROUTES: Routes = {
  ...operatorUsageRoutes,
  ...operatorSelectedRoutes,
  ...operatorRunningRoutes,
  ...operatorRequestRoutes,
  ...operatorProjectRoutes,
  ...adminKeyRoutes,
  ...peopleRoutes,
  ...modelRoutes,
  ...operatorKeyFormRoutes,
  ...operatorKeyRoutes,
};

/**
 * The console as a Hono application. Needs the client's address as the binding
 * `remoteIp`. Refusals and faults are answered with a page, too, and logged.
 */
export function createConsole(deps: ConsoleDeps): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>();
  const adminApi = createAdminApi(() => adminDeps(deps), deps.log);
  // Every path below `/admin/`. `/admin` itself is no page.
  app.use("/admin/:path{.+}", baseHeaders, (c) => {
    c.set("deps", deps);
    checkHost(c);
    const { var: { requestId }, env: { remoteIp } } = c;
    return adminApi(c.req.raw, { requestId, remoteIp });
  });
  app.use(baseHeaders, async (c, next) => {
    c.set("deps", deps);
    checkHost(c);
    checkNoKey(c);
    checkSite(c);
    await next();
  });
  app.use(formGuard());
  addRoutes(app, PUBLIC_ROUTES, (handler) => handler);
  addRoutes(app, ROUTES);
  addRoutes(app, OPERATOR_ROUTES, forOperators);
  app.notFound(async (c) => {
    await recognize(c);
    return await refuse(c, new Refused(404, "This page does not exist"));
  });
  app.onError((error, c) => {
    const refused = asRefused(error, c.req);
    const { status, message } = refused;
    const signedIn: SignedIn | undefined = c.get("signedIn");
    const ownerId = signedIn?.session.ownerId ?? null;
    const [requestId, clientAddress] = [c.var.requestId, c.env.remoteIp];
    const line = { requestId, status, ownerId, clientAddress, message };
    // Logs who was refused what (ASVS 16.3.2, 16.3.3), and failures with their cause.
    if (status < 500) deps.log.warn("request_refused", line);
    else deps.log.error("request_failed", { ...line, error });
    return refuse(c, refused);
  });
  return app;
}

/** What the admin API works with: the same as the pages. */
const adminDeps = (deps: ConsoleDeps): AdminDeps => ({
  ...deps,
  modelNames: {
    ids: () => deps.catalog.isPending ? undefined : [...deps.catalog.keys()],
    find: (name) => deps.catalog.find(name),
  },
  askWorkers: () =>
    Promise.resolve({
      ...deps.workers,
      mistakes: deps.listMistakes,
      tellOverrides: deps.tellOverrides,
      [Symbol.asyncDispose]: keepOpen,
    }),
  askRunning: () =>
    Promise.resolve({
      list: (account) => deps.running.list(account),
      stop: (request) => deps.running.stop(request),
      [Symbol.asyncDispose]: keepOpen,
    }),
});

/** The console goes on listening. */
const keepOpen = () => Promise.resolve();

/**
 * Adds routes, private by default. Every other method of a path is answered 405 with
 * `Allow` (ASVS 4.1.4).
 */
export function addRoutes(
  app: Hono<ConsoleEnv>,
  routes: Routes,
  guarded: (handler: Handler) => Handler = behindSignIn,
): void {
  for (const [path, { GET, POST }] of Object.entries(routes)) {
    if (GET) app.get(path, answering(guarded(GET)));
    if (POST) app.post(path, answering(guarded(POST)));
    const allow = [GET && "GET, HEAD", POST && "POST"].filter(Boolean);
    app.all(path, () => {
      throw new Refused(405, "This page does not support that method", {
        headers: { allow: allow.join(", ") },
      });
    });
  }
}
