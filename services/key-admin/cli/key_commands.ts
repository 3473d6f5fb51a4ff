import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyFilter, PAGE_ROWS } from "../domain/keys/key_page.ts";
import type { Answer } from "./answer.ts";
import {
  allowOptions,
  type CommandLine,
  numberFrom,
  UsageError,
} from "./arguments.ts";
import {
  type CommandDeps,
  create,
  edit,
  enable,
  refused,
  rotate,
  switchOff,
} from "./key_change_commands.ts";
import { findOwner, targetOf } from "./key_target.ts";
import { describeKey, tableOf, toJson } from "./key_text.ts";

/** `keys --help` */
export const KEYS_HELP = `Manage API keys.

  keys create --description TEXT [limits and rights]
  keys list [--search WORDS] [--state enabled|disabled|with_expiry] [--rows N] [--after CURSOR]
  keys show ID
  keys edit ID [--description TEXT] [limits and rights]
  keys disable ID [--stop-running]
  keys enable ID
  keys delete ID [--stop-running]
  keys rotate ID [--old now|1h|24h|7d]    how long the old key lives on (24h)

Limits, 0 for none, KEY_… of the environment where not given:
                    --rpm N  --tpm N  --tokens-per-day N  --concurrency N
Rights: --scopes chat,models,image,video,speech  --models a,b  --expires TIME|never
--owner EMAIL   whose keys; without it those of the first owner.
                "create" makes an owner of an address that is new
--stop-running  also ends the requests that are running now
--json          prints one object

The keys are those of the cluster that "deno task up" runs, or of REDIS_URL.`;

/** Runs `keys …`. Throws {@link UsageError} and `CommandRefused`. */
export async function runKeysCommand(
  deps: CommandDeps,
  line: CommandLine,
): Promise<Answer> {
  const [command = "", keyId, ...more] = line.words;
  if (more.length > 0) throw new UsageError(`What is "${more[0]}" for?`);
  const run = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
  if (run === undefined) {
    throw new UsageError(
      command === "" ? "Which command?" : `There is no command "${command}"`,
    );
  }
  return await run(deps, line, keyId);
}

type Run = (
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
) => Promise<Answer>;

const COMMANDS: Readonly<Record<string, Run>> = {
  create,
  list,
  show,
  edit,
  disable: (deps, line, keyId) => switchOff(deps, line, keyId, "disable"),
  enable,
  delete: (deps, line, keyId) => switchOff(deps, line, keyId, "delete"),
  rotate,
};

async function list(
  deps: CommandDeps,
  line: CommandLine,
  surplus: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner", "search", "state", "rows", "after"]);
  if (surplus !== undefined) throw new UsageError(`What is "${surplus}" for?`);
  const cursor = line.text("after");
  const ownerId = await findOwner(deps, line);
  const page = await deps.keys.list(ownerId, {
    filter: filterFrom(line.text("state")),
    search: line.text("search") ?? "",
    start: cursor === undefined ? { at: "first" } : { at: "after", cursor },
    rows: numberFrom(line, "rows", { min: 1, max: 200, otherwise: PAGE_ROWS }),
    day: usageDay(deps.now()),
  });
  const more = page.next === null ? "" : `\n\nMore: --after "${page.next}"`;
  return {
    json: {
      keys: page.rows.map((row) => ({
        ...toJson(row.key, deps.now()),
        last_used_at: row.lastUsedAtMs === null
          ? null
          : new Date(row.lastUsedAtMs).toISOString(),
        requests_today: row.requestsToday,
        tokens_today: row.tokensToday,
      })),
      total: page.total,
      next: page.next,
    },
    text: page.rows.length === 0 && page.next === null
      ? nothingListed(line)
      : tableOf(page.rows, deps.now()) + more,
  };
}

function nothingListed(line: CommandLine): string {
  return line.given.includes("search") || line.given.includes("state")
    ? "No key is like that. Words are found by their beginning."
    : `No keys yet. Make one: keys create --description "My first key"`;
}

async function show(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner"]);
  const target = await targetOf(deps, line, keyId);
  const key = await deps.keys.get(target.ownerId, target.keyId);
  if (key === null) throw refused("not_found");
  return {
    json: toJson(key, deps.now()),
    text: describeKey(key, deps.now()),
  };
}

function filterFrom(text: string | undefined): KeyFilter {
  switch (text) {
    case undefined:
      return "all";
    case "all":
    case "enabled":
    case "disabled":
    case "with_expiry":
      return text;
    default:
      throw new UsageError(
        "--state is one of all, enabled, disabled, with_expiry",
      );
  }
}
