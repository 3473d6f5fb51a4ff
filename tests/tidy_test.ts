/**
 * The rules of ARCHITECTURE.md that a machine can check: who may import whom, and
 * who may touch the process. A rule that is not tested is a wish.
 */
import assert from "node:assert/strict";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SERVICES = [
  "edge-auth",
  "chat-worker",
  "key-admin",
  "model-simulator",
];

/** Protocol and policy code: no Deno, no sockets, no timers, no stores. */
const PURE_ROOMS = [
  /^shared\/openai\//,
  /^shared\/keys\//,
  /^shared\/models\//,
  /^shared\/tokens\//,
  /^shared\/limits\.ts$/,
  /^shared\/process\/(clock|ids|env|error_text)\.ts$/,
  /^shared\/bus\/(?!link|probe)/,
  /^services\/edge-auth\/(dispatch\/workers|chat\/models|chat\/sse_lines|http\/json_body)\.ts$/,
  /^services\/chat-worker\/(encode_answer|edge_liveness)\.ts$/,
  /^services\/model-simulator\/(language|passages|request|controls|json_schema|plan|choice|errors)\.ts$/,
  /^services\/chat-worker\/backends\/(?!attempt_deadlines|http_client)/,
];
const PURE_IMPORTS = /^(zod|node:crypto|node:buffer)$/;
const IMPURE_WORDS =
  /\b(Deno\.|setTimeout\(|setInterval\(|fetch\(|performance\.now\(|Date\.now\(|Math\.random\()/;
/** The clock itself, and the process's own randomness, have to come from somewhere. */
const SOURCES_OF_IMPURITY = [
  "shared/process/clock.ts",
  "shared/process/ids.ts",
];

const ENVIRONMENT = /\bDeno\.env\b/;
const PROCESS = /\bDeno\.(serve|exit|addSignalListener|exitCode)\b/;
const IMPORT = /^(?:import|export)\b[\w\s{},*$]*?\bfrom\s*["']([^"']+)["']/gm;
const BARE_IMPORT = /^import\s*["']([^"']+)["']/gm;
const DYNAMIC_IMPORT = /\bimport\(\s*["']([^"']+)["']/g;

interface SourceFile {
  /** Relative to the root, with forward slashes. */
  path: string;
  text: string;
  imports: string[];
}

function sourceFiles(folder: string): SourceFile[] {
  const files: SourceFile[] = [];
  for (const entry of Deno.readDirSync(join(ROOT, folder))) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory && entry.name !== "node_modules") {
      files.push(...sourceFiles(path));
    } else if (/\.tsx?$/.test(entry.name)) {
      const text = Deno.readTextFileSync(join(ROOT, path));
      files.push({ path, text, imports: importsOf(text) });
    }
  }
  return files;
}

function importsOf(text: string): string[] {
  return [IMPORT, BARE_IMPORT, DYNAMIC_IMPORT].flatMap((
    form,
  ) => [...text.matchAll(form)])
    .map((match) => match[1] ?? "");
}

/** Where an import leads, as a path from the root, or the bare name. */
function targetOf(file: SourceFile, specifier: string): string {
  if (specifier.startsWith("@gateway/")) {
    const [name = "", ...rest] = specifier.slice("@gateway/".length).split("/");
    return name === "shared"
      ? `shared/${rest.join("/")}`
      : `services/${name}/${rest.join("/")}`;
  }
  if (!specifier.startsWith(".")) return specifier;
  return relative(ROOT, join(ROOT, dirname(file.path), specifier));
}

function isTest(file: SourceFile): boolean {
  return /_(test|fixture)\.tsx?$|\/simulation\/|\/testing\//
    .test(file.path);
}

/** Code without comments, so that words in prose do not count. */
function codeOf(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
}

const files = ["shared", "services", "tests", "bench", "deploy"].flatMap(
  sourceFiles,
);

function violations(
  rule: (file: SourceFile) => string[],
): string[] {
  return files.flatMap((file) =>
    rule(file).map((what) => `${file.path}: ${what}`)
  );
}

Deno.test("services never import each other", () => {
  assert.deepEqual(
    violations((file) => {
      const own = SERVICES.find((name) =>
        file.path.startsWith(`services/${name}/`)
      );
      if (own === undefined) return [];
      return file.imports.map((specifier) => targetOf(file, specifier))
        .filter((target) =>
          target.startsWith("services/") &&
          !target.startsWith(`services/${own}/`)
        );
    }),
    [],
  );
});

Deno.test("shared imports no service, and nothing that runs imports tests or bench", () => {
  assert.deepEqual(
    violations((file) => {
      if (isTest(file) || /^(tests|bench)\//.test(file.path)) return [];
      const forbidden = file.path.startsWith("shared/")
        ? /^(services|tests|bench|deploy)\//
        : /^(tests|bench)\//;
      return file.imports.map((specifier) => targetOf(file, specifier))
        .filter((target) => forbidden.test(target));
    }),
    [],
  );
});

Deno.test("key-admin's domain imports neither the console nor the command line", () => {
  assert.deepEqual(
    violations((file) => {
      if (isTest(file)) return [];
      const [, room] =
        /^services\/key-admin\/(domain|cli|web)\//.exec(file.path) ??
          [];
      if (room === undefined) return [];
      const allowed = new RegExp(`^services/key-admin/(domain|${room})/`);
      return file.imports.map((specifier) => targetOf(file, specifier))
        .filter((target) =>
          target.startsWith("services/") && !allowed.test(target)
        );
    }),
    [],
  );
});

Deno.test("no two folders import each other", () => {
  const edges = new Set<string>();
  for (const file of files) {
    if (isTest(file) || /^(tests|bench)\//.test(file.path)) continue;
    const from = dirname(file.path);
    for (const specifier of file.imports) {
      const to = dirname(targetOf(file, specifier));
      if (/^(shared|services|deploy)\b/.test(to) && to !== from) {
        edges.add(`${from} > ${to}`);
      }
    }
  }
  assert.ok(edges.size > 0);
  const circles = [...edges].filter((edge) =>
    edges.has(edge.split(" > ").reverse().join(" > "))
  );
  assert.deepEqual(circles, []);
});

/** The rooms of ARCHITECTURE.md that a library is confined to. */
const LIBRARY_ROOMS: Record<string, RegExp> = {
  nats: /^shared\/bus\/link/,
  redis: /^shared\/redis\//,
  "@opentelemetry/api": /^shared\/process\/tracing\.ts$/,
  hono: /^services\/key-admin\//,
};

Deno.test("a library is used in its room and nowhere else", () => {
  const used = new Set<string>();
  const found = violations((file) => {
    if (isTest(file) || /^(tests|bench)\//.test(file.path)) return [];
    return file.imports.filter((specifier) =>
      Object.entries(LIBRARY_ROOMS).some(([library, room]) => {
        if (specifier !== library && !specifier.startsWith(`${library}/`)) {
          return false;
        }
        used.add(library);
        return !room.test(file.path);
      })
    );
  });
  assert.deepEqual(found, []);
  assert.deepEqual([...used].sort(), Object.keys(LIBRARY_ROOMS).sort());
});

Deno.test("services and tests enter shared by its doors", () => {
  assert.deepEqual(
    violations((file) => {
      if (file.path.startsWith("shared/")) return [];
      return file.imports.filter((specifier) =>
        specifier.startsWith(".") &&
        targetOf(file, specifier).startsWith("shared/")
      );
    }),
    [],
  );
});

Deno.test("protocol and policy code is pure", () => {
  for (const room of PURE_ROOMS) {
    assert.ok(files.some(({ path }) => room.test(path)), `${room}: no file`);
  }
  assert.deepEqual(
    violations((file) => {
      if (isTest(file) || !PURE_ROOMS.some((room) => room.test(file.path))) {
        return [];
      }
      const imports = file.imports.filter((specifier) =>
        !specifier.startsWith(".") && !specifier.startsWith("@gateway/") &&
        !PURE_IMPORTS.test(specifier)
      );
      if (SOURCES_OF_IMPURITY.includes(file.path)) return imports;
      const words = codeOf(file.text).match(IMPURE_WORDS) ?? [];
      return [...imports, ...words.slice(0, 1)];
    }),
    [],
  );
});

Deno.test("only config.ts reads the environment of a service", () => {
  assert.deepEqual(
    violations((file) => {
      if (isTest(file) || !/^(shared|services)\//.test(file.path)) return [];
      if (/^services\/[^/]+\/(config|cli)\.ts$/.test(file.path)) return [];
      return ENVIRONMENT.test(codeOf(file.text)) ? ["Deno.env"] : [];
    }),
    [],
  );
});

Deno.test("only main.ts and the life of a service touch the process", () => {
  assert.deepEqual(
    violations((file) => {
      if (isTest(file) || !/^(shared|services)\//.test(file.path)) return [];
      if (/^services\/[^/]+\/(main|cli)\.ts$/.test(file.path)) return [];
      if (/^shared\/process\/serv(e|ice)\.ts$/.test(file.path)) return [];
      return codeOf(file.text).match(PROCESS)?.slice(0, 1) ?? [];
    }),
    [],
  );
});

Deno.test("packages come through the root import map only", () => {
  assert.deepEqual(
    violations((file) =>
      file.imports.filter((specifier) => /^(npm|jsr|https?):/.test(specifier))
    ),
    [],
  );
});

Deno.test("no test is skipped or run alone", () => {
  const skipped =
    /\b(?:(?:ignore|only)\s*:(?!\s*false\b)|Deno\.test\.(?:ignore|only)\b)/;
  assert.deepEqual(
    violations((file) =>
      (isTest(file) || file.path.startsWith("tests/")) &&
        !file.path.endsWith("tidy_test.ts") &&
        skipped.test(codeOf(file.text))
        ? ["skipped"]
        : []
    ),
    [],
  );
});
