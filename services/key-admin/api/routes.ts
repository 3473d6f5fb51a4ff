/** Every route of the admin API. */
import { ACCOUNT_ROUTES } from "./account_routes.ts";
import { ADMIN_KEY_ROUTES } from "./admin_key_routes.ts";
import { KEY_ROUTES } from "./key_routes.ts";
import { MODEL_ROUTES } from "./model_routes.ts";
import { OWNER_ROUTES } from "./owner_routes.ts";
import { PROJECT_ROUTES } from "./project_routes.ts";
import { REQUEST_ROUTES } from "./request_routes.ts";
import type { AdminRoute } from "./route.ts";
import { USAGE_ROUTES } from "./usage_routes.ts";

/** Where the paths of the routes begin. */
export const ADMIN_BASE = "/admin/v1";

/** All routes, in the order of the description. */
export const ADMIN_ROUTES: readonly AdminRoute[] = [
  ...KEY_ROUTES,
  ...OWNER_ROUTES,
  ...PROJECT_ROUTES,
  ...ACCOUNT_ROUTES,
  ...ADMIN_KEY_ROUTES,
  ...MODEL_ROUTES,
  ...REQUEST_ROUTES,
  ...USAGE_ROUTES,
];
