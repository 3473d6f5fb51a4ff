// Promise: a wrong URL in any variable ends a service, the launcher or the command line
// before it starts anything, with status 78 (EX_CONFIG) and a sentence for the
// operator.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import {
  aboutOf,
  ConfigError,
  keysOf,
  parseEnv,
  type Variables,
} from "@gateway/shared/process/env";
import { REDIS_VARIABLES } from "@gateway/shared/process/service_variables";
import { SERVICE_VARIABLES } from "../../deploy/docs/pages.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** What may not follow a protocol: no host, no port, no text in UTF-8. */
const WRONG_RESTS = ["", "host:port", "host:70000", "user:%zz@h", "%ff@host"];
const readNothing = (path: string) => assert.fail(path);

interface Program {
  name: string;
  script: string;
  args?: string[];
  variables: readonly string[];
}

/** Every variable of a service that takes one or more URLs. */
function urlVariables(service: keyof typeof SERVICE_VARIABLES): string[] {
  return Object.entries(SERVICE_VARIABLES[service])
    .filter(([, schema]) => /\b(URLs?|origin)\b/.test(aboutOf(schema).expects))
    .map(([name]) => name);
}

const PROGRAMS: readonly Program[] = [
  ...keysOf(SERVICE_VARIABLES).map((name) => ({
    name,
    script: `services/${name}/main.ts`,
    variables: urlVariables(name),
  })),
  {
    name: "deno task up",
    script: "deploy/up/main.ts",
    variables: [
      "NATS_URL",
      "REDIS_URL",
      "UPSTREAM_BASE_URL",
      "MODEL_SIMULATOR_URL",
    ],
  },
  {
    name: "deno task keys",
    script: "services/key-admin/cli.ts",
    args: ["keys", "list"],
    variables: urlVariables("key-admin"),
  },
];

/** Runs a program in an empty directory to its end. */
async function runIn(
  cwd: string,
  { script, args = [] }: Program,
  env: Record<string, string>,
) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-check", "-A", `${ROOT}${script}`, ...args],
    cwd,
    env,
  }).output();
  const texts = [stdout, stderr].map((each) => new TextDecoder().decode(each));
  return { code, text: texts.join("") };
}

for (
  const program of PROGRAMS.filter(({ variables }) => variables.length > 0)
) {
  Deno.test(`wrong URLs end ${program.name} with status 78 and a sentence`, async () => {
    const cwd = await Deno.makeTempDir({ prefix: "url-variables-" });
    try {
      const variables = program.variables.map((name) => [name, "foo"]);
      const { code, text } = await runIn(
        cwd,
        program,
        Object.fromEntries(variables),
      );
      assert.equal(code, 78, text);
      for (const name of program.variables) {
        assert.match(text, new RegExp(`- ${name}[ =].*\n +expected `));
      }
      assert.doesNotMatch(text, /^\s+at /m, "a stack trace");
    } finally {
      await Deno.remove(cwd, { recursive: true });
    }
  });
}

Deno.test("no URL variable takes what its client would fail on later", () => {
  for (const service of keysOf(SERVICE_VARIABLES)) {
    const variables: Variables = SERVICE_VARIABLES[service];
    for (const name of urlVariables(service)) {
      const { [name]: variable = assert.fail() } = variables;
      const protocols = aboutOf(variable).expects.match(/\b[a-z]+:\/\//g) ?? [];
      for (const protocol of protocols) {
        for (const rest of WRONG_RESTS) {
          const value = `${protocol}${rest}`;
          const read = () =>
            parseEnv({ [name]: variable }, { [name]: value }, readNothing);
          assert.throws(read, ConfigError, `${service} ${name}=${value}`);
        }
      }
    }
  }
  const { REDIS_URL } = REDIS_VARIABLES;
  for (const value of ["redis://host/one", "redis://host/1/2"]) {
    const read = () =>
      parseEnv({ REDIS_URL }, { REDIS_URL: value }, readNothing);
    assert.throws(read, ConfigError, value);
  }
});
