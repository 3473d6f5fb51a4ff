/** Lists the packages of the lock file as CycloneDX 1.6: `deno task sbom`. */
const USAGE = `Usage: deno task sbom [FILE]

Writes a CycloneDX list of the packages in deno.lock to FILE (sbom.cdx.json).
`;

/** Packages that only tests and benchmarks use; so do their dependencies. */
const TEST_PACKAGES = [
  ...["@seriousme/openapi-schema-validator", "ajv"],
  ...["axe-core", "openai", "playwright-core"],
];

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
  const packages = Object.entries(npm).map(([id, entry]) => {
    const { dependencies = [], optionalDependencies = [] } = entry;
    const needs = [...dependencies, ...optionalDependencies];
    return { id, ...nameAndVersion(id), ...entry, needs };
  });
  /** A dependency with a single version is locked by its name alone. */
  const byName = new Map(packages.map((one) => [one.name, one.id]));
  const idOf = (need: string) => need in npm ? need : byName.get(need) ?? need;
  const required = new Set(
    Object.entries(specifiers).map(([specifier, version]) =>
      `${nameAndVersion(specifier.replace("npm:", "")).name}@${version}`
    ).filter((id) => !TEST_PACKAGES.includes(nameAndVersion(id).name)),
  );
  // A set grows while it is walked.
  for (const id of required) {
    for (const need of packages.find((one) => one.id === id)?.needs ?? []) {
      required.add(idOf(need));
    }
  }
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    components: packages.map(({ id, name, version, integrity }) => ({
      type: "library",
      "bom-ref": id,
      name,
      version,
      scope: required.has(id) ? "required" : "excluded",
      purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
      hashes: [{
        alg: "SHA-512",
        content: Uint8Array.fromBase64(integrity.replace("sha512-", ""))
          .toHex(),
      }],
    })),
    dependencies: packages.map(({ id, needs }) => ({
      ref: id,
      dependsOn: needs.map(idOf),
    })),
  };
}

/** Of `@redis/client@6.3.1_zod@4.6.7`, which was resolved with a peer. */
function nameAndVersion(id: string): { name: string; version: string } {
  const at = id.indexOf("@", 1);
  const [version = ""] = id.slice(at + 1).split("_");
  return { name: id.slice(0, at), version };
}

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
