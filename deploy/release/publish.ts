/** The commands that publish a release, in the order in which they must run. Pure. */
import { tagOf } from "./faults.ts";

/** A program and its arguments. */
export type Command = readonly [program: string, ...args: string[]];

/** The images of the product, each a target of the `Dockerfile`. */
export const IMAGES = [
  "edge-auth",
  "chat-worker",
  "media-worker",
  "key-admin",
  "model-simulator",
] as const;
/** What the images run on. */
const PLATFORMS = "linux/amd64,linux/arm64";

/** What is published, and where. */
export interface Publication {
  readonly version: string;
  /** The commit, shortened. */
  readonly revision: string;
  /** Such as `registry.example.org/gateway`. */
  readonly registry: string;
  /** The package of the Helm chart. */
  readonly chartFile: string;
}

/**
 * The tag goes first, because only its signature asks a person, and is pushed last,
 * when everything that it promises is there.
 */
export function commandsOf(
  { version, revision, registry, chartFile }: Publication,
): Command[] {
  const tag = tagOf(version);
  return [
    ["git", "tag", "--sign", "--message", `Version ${version}`, tag],
    ...IMAGES.map((image): Command => [
      "docker",
      "buildx",
      "build",
      "--platform",
      PLATFORMS,
      "--target",
      image,
      "--build-arg",
      `REVISION=${revision}`,
      "--sbom=true",
      "--provenance=mode=max",
      "--push",
      "--tag",
      `${registry}/${image}:${version}`,
      ".",
    ]),
    ["helm", "push", chartFile, `oci://${registry}`],
    ["git", "push", "origin", tag],
  ];
}

/** A command as people type it. */
export const textOf = (command: Command): string =>
  command.map((word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`)
    .join(" ");
