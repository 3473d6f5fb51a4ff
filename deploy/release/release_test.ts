/** Whether a commit can be released: version, changelog and tags agree. */
import assert from "node:assert/strict";
import { faultsOf, notesOf, type ReleaseState } from "./faults.ts";
import { checksumsOf, provenanceOf } from "./provenance.ts";
import { commandsOf, IMAGES, textOf } from "./publish.ts";

const RIGHT: ReleaseState = {
  version: "1.2.3",
  chart: "name: chat-gateway\nversion: 1.2.3\nappVersion: 1.2.3\n",
  examples: {
    "managed.yaml": "image: { registry: registry.example.org, tag: 1.2.3 }\n",
    "trial.yaml": "edge: { replicas: 1 }\n",
  },
  changelog:
    "# Changelog\n\n## 1.2.3 (2026-11-29)\n\n- New.\n\n## 1.2.2 (2026-11-01)\n",
  status: "",
  tags: ["v1.2.2"],
};

const WRONG: readonly { change: Partial<ReleaseState>; fault: RegExp }[] = [
  { change: { version: "1.2" }, fault: /"1\.2" is not a version/ },
  {
    change: { chart: "version: 1.2.3\nappVersion: 1.2.2\n" },
    fault: /^Chart\.yaml: appVersion is 1\.2\.2, not 1\.2\.3$/,
  },
  {
    change: { chart: "appVersion: 1.2.3\n" },
    fault: /^Chart\.yaml: version is missing/,
  },
  {
    change: { examples: { "a.yaml": "image: { tag: 1.2.0 }" } },
    fault: /^a\.yaml: the images have the tag 1\.2\.0/,
  },
  {
    change: { changelog: "## 1.2.3 (unreleased)\n" },
    fault: /^CHANGELOG\.md: 1\.2\.3 has no date.*\(unreleased\)$/,
  },
  {
    change: { changelog: "## 1.2.2 (2026-11-01)\n" },
    fault: /^CHANGELOG\.md: the newest version is 1\.2\.2/,
  },
  { change: { changelog: "" }, fault: /newest version is missing/ },
  {
    change: { status: " M deno.json" },
    fault: /^the working tree has changes/,
  },
  { change: { tags: ["v1.2.3"] }, fault: /^the tag v1\.2\.3 exists/ },
];

Deno.test("a commit whose texts agree is a release", () => {
  assert.deepEqual(faultsOf(RIGHT), []);
});

for (const { change, fault } of WRONG) {
  Deno.test(`no release: ${fault.source}`, () => {
    assert.ok(
      faultsOf({ ...RIGHT, ...change }).some((each) => fault.test(each)),
    );
  });
}

Deno.test("all faults are named at once", () => {
  const faults = faultsOf({ ...RIGHT, status: "?? x", tags: ["v1.2.3"] });
  assert.equal(faults.length, 2);
});

Deno.test("the notes of a version are its section of the changelog", () => {
  assert.equal(notesOf(RIGHT.changelog, "1.2.3"), "- New.");
  assert.equal(notesOf(RIGHT.changelog, "1.2.2"), "");
  assert.equal(notesOf(RIGHT.changelog, "1.2"), "");
});

Deno.test("the provenance names each file, the commit and the builder", () => {
  const artefacts = [{ name: "a.tgz", sha256: "ab" }];
  const statement = provenanceOf(artefacts, {
    version: "1.2.3",
    repository: "https://git.example.org/gateway",
    commit: "c".repeat(40),
    builder: "https://ci.example.org/jobs/1",
  });
  assert.partialDeepStrictEqual(statement, {
    subject: [{ name: "a.tgz", digest: { sha256: "ab" } }],
    predicate: {
      buildDefinition: {
        externalParameters: { version: "1.2.3" },
        resolvedDependencies: [{ digest: { gitCommit: "c".repeat(40) } }],
      },
      runDetails: { builder: { id: "https://ci.example.org/jobs/1" } },
    },
  });
  assert.equal(checksumsOf(artefacts), "ab  a.tgz\n");
});

Deno.test("the images are those of the Dockerfile, and the tag is pushed last", async () => {
  const root = new URL("../../", import.meta.url);
  const dockerfile = await Deno.readTextFile(new URL("Dockerfile", root));
  const targets = [...dockerfile.matchAll(/^FROM base AS (\S+)$/gm)]
    .map(([, target]) => target);
  assert.deepEqual([...IMAGES].sort(), targets.sort());
  const commands = commandsOf({
    version: "1.2.3",
    revision: "0123456",
    registry: "registry.example.org/gateway",
    chartFile: "a folder/chart.tgz",
  }).map(textOf);
  assert.equal(commands[0], "git tag --sign --message 'Version 1.2.3' v1.2.3");
  assert.match(
    commands[1] ?? "",
    /--platform linux\/amd64,linux\/arm64 --target/,
  );
  assert.deepEqual(commands.slice(-2), [
    "helm push 'a folder/chart.tgz' oci://registry.example.org/gateway",
    "git push origin v1.2.3",
  ]);
});
