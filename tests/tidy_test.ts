// The rules of ARCHITECTURE.md that a machine can check: what may import what, and
// what may touch the process.
import assert from "node:assert/strict";
import {
  mayImport,
  readRooms,
  roomOf,
  unusedIn,
} from "./support/repository/room_table.ts";
import {
  readSources,
  SOURCE_FOLDERS,
  type SourceFile,
} from "./support/repository/source_files.ts";
import {
  importsOf,
  targetOf,
  targetsOf,
} from "./support/repository/source_imports.ts";

/** Protocol and policy code: no Deno, no sockets, no timers, no stores. */
const PURE_ROOMS = [
  /^shared\/openai\//,
  /^shared\/keys\//,
  /^shared\/forward\//,
  /^shared\/models\//,
  /^shared\/limits\.ts$/,
  /^shared\/process\/(clock|ids|env|error_text)\.ts$/,
  /^shared\/bus\/(?!link)/,
  /^shared\/backends\//,
  /^services\/edge-auth\/(dispatch\/workers|chat\/sse_lines|limits\/(cost|refusal))\.ts$/,
  /^services\/model-simulator\/(chat\/(?!completion)|serving\/(?!answer))/,
  /^services\/chat-worker\/(backends|forward|requests)\//,
  /^services\/media-worker\/(?!main|config)/,
  /^shared\/upstream\/(?!http\/(attempt_deadlines|connect|client)\.ts)/,
  /^shared\/worker\/(?!service)/,
  /^shared\/reload\/(?!watch|files)/,
];
const PURE_IMPORTS = /^(zod|node:crypto|node:buffer|node:zlib)$/;
const IMPURE_WORDS =
  /\b(Deno\.|setTimeout\(|setInterval\(|fetch\(|performance\.now\(|Date\.now\(|Math\.random\()/;
/** The files that provide the clock and the randomness themselves. */
const SOURCES_OF_IMPURITY = [
  "shared/process/clock.ts",
  "shared/process/ids.ts",
];

const SKIPPED =
  /\b(?:(?:ignore|only)\s*:(?!\s*false\b)|Deno\.test\.(?:ignore|only)\b)/;
const PROCESS = /\bDeno\.(serve|exit|addSignalListener|exitCode)\b/;
/**
 * In `this.x = () => …` and in `x = () => …` of a class: such functions, and all that
 * they refer to, live until the next full collection.
 */
const FUNCTION_FIELD =
  /^\s+(?:(?:readonly|override) )*(?:this\.)?#?\w+(?:: [^=\n]+)? = (?:async )?\([^)]*\)(?:: [^=\n]+)? =>/m;

/** Code without comments, so that words in prose do not count. */
function codeOf({ text }: SourceFile): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
}

const TEST = /_(test|fixture)\.tsx?$|^(tests|bench|deploy\/compose_test)\//;
const all = readSources(SOURCE_FOLDERS, /\.tsx?$/);
const production = all.filter(({ path }) => !TEST.test(path));
const program = production.filter(({ path }) => !path.startsWith("deploy/"));

const within = (files: readonly SourceFile[], form: RegExp) =>
  files.filter(({ path }) => form.test(path));
const outside = (files: readonly SourceFile[], form: RegExp) =>
  files.filter(({ path }) => !form.test(path));

const rooms = readRooms();
/** The files that a library is confined to, within its room. */
const LIBRARY_ROOMS: Record<string, RegExp> = {
  nats: /^shared\/bus\/link/,
  "@nats-io/jetstream": /^shared\/kept\/log_nats\.ts$/,
  redis: /^shared\/redis\//,
  "@opentelemetry/api": /^shared\/process\/tracing\.ts$/,
  hono: /^services\/key-admin\//,
  "@fastify/busboy": /^services\/edge-auth\/http\/form_parser\.ts$/,
};

/** Files, and what of each breaks the rule. */
const RULES: {
  [rule: string]: readonly [
    files: readonly SourceFile[],
    faultsOf: (file: SourceFile) => readonly string[],
  ];
} = {
  "each room imports only what its row in ARCHITECTURE.md allows": [
    production,
    (file) => {
      const room = roomOf(rooms, file.path);
      if (room === undefined) return ["its folder has no row"];
      return targetsOf(file).filter((target) =>
        roomOf(rooms, target) !== room && !mayImport(room, target)
      );
    },
  ],
  "services never import each other": [
    within(all, /^services\//),
    (file) => {
      const [own] = /^services\/[^/]+\//.exec(file.path) ?? [""];
      return targetsOf(file).filter((target) =>
        target.startsWith("services/") && !target.startsWith(own)
      );
    },
  ],
  "shared imports no service": [
    within(production, /^shared\//),
    (file) => targetsOf(file).filter((to) => /^(services|deploy)\//.test(to)),
  ],
  "nothing that runs imports tests or bench": [
    production,
    (file) => targetsOf(file).filter((to) => /^(tests|bench)\//.test(to)),
  ],
  "key-admin's domain imports neither the console nor the command line": [
    within(production, /^services\/key-admin\/(api|domain|cli|web)\//),
    (file) => {
      const [, , room = ""] = file.path.split("/");
      // Commands ask the admin API.
      const rooms = ["domain", room, ...room === "cli" ? ["api"] : []].join(
        "|",
      );
      const allowed = new RegExp(`^services/key-admin/(${rooms})/`);
      return targetsOf(file).filter((target) =>
        target.startsWith("services/") && !allowed.test(target)
      );
    },
  ],
  "a library is used in its room only": [
    production,
    (file) =>
      Object.entries(LIBRARY_ROOMS).flatMap(([library, room]) =>
        room.test(file.path)
          ? []
          : importsOf(file).filter((name) =>
            name === library || name.startsWith(`${library}/`)
          )
      ),
  ],
  "services and tests import only what shared exports": [
    outside(all, /^shared\//),
    (file) =>
      importsOf(file).filter((name) =>
        name.startsWith(".") && targetOf(file, name).startsWith("shared/")
      ),
  ],
  "protocol and policy code is pure": [
    PURE_ROOMS.flatMap((room) => {
      const files = within(production, room);
      assert.ok(files.length > 0, String(room));
      return files;
    }),
    (file) => {
      const imports = importsOf(file).filter((name) =>
        !/^(\.|@gateway\/)/.test(name) && !PURE_IMPORTS.test(name)
      );
      if (SOURCES_OF_IMPURITY.includes(file.path)) return imports;
      return [...imports, ...codeOf(file).match(IMPURE_WORDS) ?? []];
    },
  ],
  "only config.ts reads the environment of a service": [
    outside(program, /^services\/[^/]+\/(config|cli)\.ts$/),
    (file) => codeOf(file).match(/\bDeno\.env\b/) ?? [],
  ],
  "only main.ts and the lifecycle of a service touch the process": [
    outside(
      program,
      /^services\/[^/]+\/(main|cli)\.ts$|^shared\/process\/lifecycle\//,
    ),
    (file) => codeOf(file).match(PROCESS) ?? [],
  ],
  "no field of an object is set to a new function, which V8 creates as old": [
    within(program, /^(services\/(edge-auth|[a-z]+-worker)|shared)\//),
    (file) => codeOf(file).match(FUNCTION_FIELD) ?? [],
  ],
  "packages come through the root import map only": [
    all,
    (file) => importsOf(file).filter((name) => /^(npm|jsr|https?):/.test(name)),
  ],
  "no test is skipped or run alone": [
    outside(within(all, TEST), /tidy_test\.ts$/),
    (file) => codeOf(file).match(SKIPPED) ?? [],
  ],
};

Deno.test("no row of ARCHITECTURE.md allows what its room does not import", () => {
  const unused = rooms.flatMap((room) => {
    const targets = production.filter(({ path }) =>
      roomOf(rooms, path) === room
    )
      .flatMap(targetsOf).filter((target) => roomOf(rooms, target) !== room);
    return unusedIn(room, targets).map((name) => `${room.path}: ${name}`);
  });
  assert.deepEqual(unused, []);
});

for (const [rule, [files, faultsOf]] of Object.entries(RULES)) {
  Deno.test(rule, () => {
    assert.ok(files.length > 0);
    const faults = files.flatMap((file) =>
      faultsOf(file).map((what) => `${file.path}: ${what}`)
    );
    assert.deepEqual(faults, []);
  });
}
