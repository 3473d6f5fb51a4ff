import type { Hono } from "hono";
import {
  type AuditQuery,
  CSV_HEAD,
  csvLine,
  isAuditCursor,
} from "../../domain/audit/audit_log.ts";
import { readUsage } from "../../domain/keys/usage.ts";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { frameOf } from "../frame_of.ts";
import { AUDIT_FILTERS, AuditPage } from "../pages/audit_page.tsx";
import { UsagePage } from "../pages/usage_page.tsx";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { rangeOf } from "./keys.tsx";

const AUDIT_ROWS = 50;
const CSV_ROWS = 500;

/** Usage and audit log. */
export function reportRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/usage", { GET: (c) => showUsage(c, deps) });
  route(app, deps, "/audit", { GET: (c) => showAudit(c, deps) });
  route(app, deps, "/audit.csv", { GET: (c) => auditCsv(c, deps) });
}

async function showUsage(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { ownerId } = c.get("signedIn").session;
  const range = rangeOf(c);
  const [usage, frame] = await Promise.all([
    readUsage(deps.redis, ownerId, null, range, deps.now()),
    frameOf(c, deps),
  ]);
  return c.html(
    <UsagePage frame={frame} usage={usage} apiUrl={deps.apiUrl} />,
  );
}

async function showAudit(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { ownerId } = c.get("signedIn").session;
  const query = { ...auditQuery(c), rows: AUDIT_ROWS };
  const entries = await deps.audit.read(ownerId, query);
  return c.html(
    <AuditPage
      frame={await frameOf(c, deps)}
      entries={entries}
      action={query.action}
      isFirst={query.before === null}
    />,
  );
}

function auditQuery(c: ConsoleContext): Omit<AuditQuery, "rows"> {
  const action = c.req.query("action") ?? "";
  const before = c.req.query("before") || null;
  if (before !== null && !isAuditCursor(before)) {
    throw new Refused(400, "This page of the log does not exist", {
      back: "/audit",
    });
  }
  return {
    action: AUDIT_FILTERS.some(([prefix]) => prefix === action) ? action : "",
    keyId: "",
    before,
  };
}

/** The whole log, page by page, so that its length costs no memory. */
function auditCsv(c: ConsoleContext, deps: ConsoleDeps): Response {
  const { ownerId } = c.get("signedIn").session;
  const { action, keyId } = auditQuery(c);
  const encoder = new TextEncoder();
  let before: string | null = null;
  let isOver = false;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(encoder.encode(CSV_HEAD));
    },
    async pull(controller) {
      if (isOver) return controller.close();
      const page = await deps.audit.read(ownerId, {
        action,
        keyId,
        before,
        rows: CSV_ROWS,
      });
      controller.enqueue(encoder.encode(page.rows.map(csvLine).join("")));
      before = page.next;
      isOver = page.next === null;
    },
  });
  return c.body(body, 200, {
    "content-type": "text/csv; charset=utf-8",
    "content-disposition": 'attachment; filename="audit.csv"',
  });
}
