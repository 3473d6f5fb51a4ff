// Promise: a commit becomes the files of a release with one command, which publishes
// nothing by itself, and nothing more after a step that has failed. Run by
// `deno task test:kubernetes`, which has helm.
import assert from "node:assert/strict";
import { VERSION } from "@gateway/shared/version";
import { makeTempDir, runProcess } from "../support/process.ts";
import { HELM_FOLDER, installTools } from "./rendering/rendered_chart.ts";

const FILES = [
  "SHA256SUMS",
  `chat-gateway-${VERSION}.tgz`,
  `gateway-${VERSION}-source.tar.gz`,
  "notes.md",
  "provenance.intoto.json",
  "sbom.cdx.json",
];
const AUTHOR = ["-c", "user.name=Test", "-c", "user.email=test@example.org"];

await installTools();

/** A clone of this commit, whose changelog has a date. */
async function cloneForRelease(clone: string): Promise<void> {
  await runProcess("git", ["clone", "--quiet", "--no-tags", ".", clone]);
  const changelog = `${clone}/CHANGELOG.md`;
  const text = await Deno.readTextFile(changelog);
  const dated = text.replace("(unreleased)", "(2026-11-29)");
  await Deno.writeTextFile(changelog, dated);
  const commit = [
    "commit",
    "--quiet",
    "--all",
    "--message",
    "release",
    "--allow-empty",
  ];
  await runProcess("git", ["-C", clone, ...AUTHOR, ...commit]);
}

/** Runs the command in a clone, where `docker` only notes that it was called. */
async function release(clone: string, ...args: string[]) {
  const programs = `${clone}.programs`;
  await Deno.mkdir(programs, { recursive: true });
  const docker = `${programs}/docker`;
  await Deno.writeTextFile(docker, `#!/bin/sh\necho "$@" >> ${clone}.docker\n`);
  await Deno.chmod(docker, 0o755);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["task", "--quiet", "release", ...args],
    cwd: clone,
    env: {
      // That of the task that runs this test leads elsewhere.
      INIT_CWD: clone,
      PATH: `${programs}:${HELM_FOLDER}:${Deno.env.get("PATH")}`,
      // Nobody's key signs here, whatever this machine has.
      GNUPGHOME: programs,
    },
  }).output();
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout), error: decoder.decode(stderr) };
}

Deno.test("a release is made, not published, and stops at a step that fails", async (t) => {
  await using folder = await makeTempDir();
  const clone = `${folder.path}/clone`;
  await cloneForRelease(clone);

  await t.step("its files are whole, and their sums are right", async () => {
    const { code, out, error } = await release(clone, "--out", "../dist");
    assert.equal(code, 0, error);
    const dist = `${folder.path}/dist`;
    const entries = await Array.fromAsync(Deno.readDir(dist));
    const names = entries.map(({ name }) => name).sort();
    assert.deepEqual(names, FILES);
    const check = 'cd "$1" && sha256sum --check --strict SHA256SUMS';
    await runProcess("sh", ["-c", check, "sh", dist]);
    assert.match(out, /^Nothing is published\./m);
    assert.match(out, /^ {2}git push origin v/m);
    const chart = await runProcess("tar", ["-tzf", `${dist}/${FILES[1]}`]);
    assert.match(chart, /^chat-gateway\/files\/alerts\.yml$/m);
    const notes = await Deno.readTextFile(`${dist}/notes.md`);
    assert.match(notes, /^- /);
    const provenance = JSON.parse(
      await Deno.readTextFile(`${dist}/provenance.intoto.json`),
    );
    assert.equal(provenance.subject.length, FILES.length - 2);
  });

  await t.step("without a signature, nothing is pushed", async () => {
    const registry = ["--publish", "127.0.0.1:1/gateway"];
    const { code, error } = await release(
      clone,
      "--out",
      "../dist",
      ...registry,
    );
    assert.equal(code, 1);
    assert.match(error, /git tag --sign .*\nended with \d+: what came before/);
    await assert.rejects(Deno.stat(`${clone}.docker`), Deno.errors.NotFound);
  });

  await t.step(
    "with changes that are not committed, nothing is made",
    async () => {
      await Deno.writeTextFile(`${clone}/README.md`, "changed");
      const { code, error } = await release(clone, "--out", "../none");
      assert.equal(code, 1);
      assert.match(
        error,
        /^Not a release:\n {2}- the working tree has changes/,
      );
      await assert.rejects(
        Deno.stat(`${folder.path}/none`),
        Deno.errors.NotFound,
      );
    },
  );
});
