/** Lists the packages of the lock file as CycloneDX 1.6: `deno task sbom`. */
const USAGE = `Usage: deno task sbom [FILE]

Writes a CycloneDX list of the packages in deno.lock to FILE (sbom.cdx.json).
`;

/** Packages that only tests and benchmarks use; so do their dependencies. */
const TEST_PACKAGES =
  /^(@anthropic-ai\/sdk|@seriousme\/openapi-schema-validator|ajv|axe-core|luaparse|openai|playwright-core)@/;

/** The part of deno.lock that is read. */
export interface LockFile {
  /** `npm:zod@4.6.7` to `4.6.7`, for each package that deno.json names. */
  specifiers: { [specifier: string]: string };
  npm: {
    [id: string]: {
      integrity: string;
      dependencies?: string[];
      optionalDependencies?: string[];
    };
  };
}

/** The bill of materials. It has no date, so the same lock gives the same text. */
export function billOfMaterials({ specifiers, npm }: LockFile) {
  /** A dependency with a single version is locked by its name alone. */
  const byName = new Map(Object.keys(npm).map((id) => [nameOf(id), id]));
  const needsOf = (id: string) => {
    const { dependencies = [], optionalDependencies = [] } = npm[id] ?? {};
    return [...dependencies, ...optionalDependencies]
      .map((need) => need in npm ? need : byName.get(need) ?? need);
  };
  const required = new Set(
    Object.entries(specifiers).map(([specifier, version]) =>
      `${nameOf(specifier.replace("npm:", ""))}@${version}`
    ).filter((id) => !TEST_PACKAGES.test(id)),
  );
  // A set grows while it is walked.
  for (const id of required) {
    for (const need of needsOf(id)) required.add(need);
  }
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    components: Object.entries(npm).map(([id, { integrity }]) => {
      const name = nameOf(id);
      // What follows was resolved with a peer: `@redis/client@6.3.1_zod@4.6.7`.
      const [version = ""] = id.slice(name.length + 1).split("_");
      const hash = Uint8Array.fromBase64(integrity.replace("sha512-", ""));
      return {
        type: "library",
        "bom-ref": id,
        name,
        version,
        scope: required.has(id) ? "required" : "excluded",
        purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
        hashes: [{ alg: "SHA-512", content: hash.toHex() }],
      };
    }),
    dependencies: Object.keys(npm)
      .map((ref) => ({ ref, dependsOn: needsOf(ref) })),
  };
}

const nameOf = (id: string) => id.slice(0, id.indexOf("@", 1));

if (import.meta.main) {
  const [file = "sbom.cdx.json", ...others] = Deno.args;
  if (file.startsWith("-") || others.length > 0) {
    await Deno.stdout.write(new TextEncoder().encode(USAGE));
  } else {
    const lock = new URL("../../deno.lock", import.meta.url);
    const bill = billOfMaterials(JSON.parse(await Deno.readTextFile(lock)));
    await Deno.writeTextFile(file, `${JSON.stringify(bill, null, 2)}\n`);
  }
}
