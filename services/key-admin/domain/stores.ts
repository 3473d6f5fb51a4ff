/** The stores behind the console and the command line, wired together. */
import { AdminKeyStore } from "./admin_keys/admin_key_store.ts";
import { AuditLog } from "./audit/audit_log.ts";
import { DefaultStore } from "./keys/default_store.ts";
import { KeyStore } from "./keys/key_store.ts";
import { OverrideStore } from "./models/override_store.ts";
import { Operators } from "./operators/operators.ts";
import { dropStopOrders } from "./operators/running_keys.ts";
import { People } from "./operators/people.ts";
import { OwnerStore, type OwnerStoreDeps } from "./owners/owner_store.ts";
import { ProjectStore } from "./projects/project_store.ts";
import { UsageReports } from "./usage/usage_reports.ts";
import { RequestLog } from "./requests/request_log.ts";
import { LinkStore } from "./sign_in/links.ts";
import { SessionStore } from "./sign_in/sessions.ts";

/**
 * The stores, and what they work with. ARCHITECTURE.md has their Redis keys.
 */
export interface Stores extends OwnerStoreDeps {
  keys: KeyStore;
  owners: OwnerStore;
  sessions: SessionStore;
  links: LinkStore;
  audit: AuditLog;
  operators: Operators;
  people: People;
  projects: ProjectStore;
  defaults: DefaultStore;
  overrides: OverrideStore;
  requests: RequestLog;
  usage: UsageReports;
  adminKeys: AdminKeyStore;
}

/** Makes the stores, which share the connections. Nothing is read or written yet. */
export function createStores(deps: OwnerStoreDeps): Stores {
  const keys = new KeyStore(deps);
  const owners = new OwnerStore(deps);
  const sessions = new SessionStore({ ...deps, keys });
  const links = new LinkStore(deps);
  const audit = new AuditLog(deps.redis);
  const projects = new ProjectStore({ ...deps, owners, audit });
  const people = new People({ ...deps, owners, keys, projects });
  return {
    ...deps,
    keys,
    owners,
    sessions,
    links,
    audit,
    operators: new Operators({
      owners,
      sessions,
      links,
      audit,
      dropStopOrders: (ownerId) => dropStopOrders(deps, ownerId),
    }),
    people,
    projects,
    requests: new RequestLog(deps),
    usage: new UsageReports({ ...deps, people }),
    adminKeys: new AdminKeyStore({ ...deps, audit, owners }),
    defaults: new DefaultStore(deps),
    overrides: new OverrideStore({ ...deps, audit, owners }),
  };
}
