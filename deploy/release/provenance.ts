/** Where the files of a release come from, as a statement that can be signed. Pure. */

/** A file of a release. */
export interface Artefact {
  readonly name: string;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** What a release was made of. */
export interface Source {
  readonly version: string;
  /** Where the repository is, as git names it. */
  readonly repository: string;
  /** 40 hexadecimal digits. */
  readonly commit: string;
  /** Whoever made it: the address of a CI job, or of a person. */
  readonly builder: string;
}

/**
 * An in-toto statement with SLSA provenance:
 * https://slsa.dev/spec/v1.1/provenance, November 2026. The same files of the same
 * commit give the same text.
 */
export function provenanceOf(
  artefacts: readonly Artefact[],
  { version, repository, commit, builder }: Source,
): object {
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: artefacts.map(({ name, sha256 }) => ({
      name,
      digest: { sha256 },
    })),
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: `${repository}/deploy/release`,
        externalParameters: { version },
        resolvedDependencies: [
          { uri: `git+${repository}`, digest: { gitCommit: commit } },
        ],
      },
      runDetails: { builder: { id: builder } },
    },
  };
}

/** The lines that `sha256sum --check` reads. */
export const checksumsOf = (artefacts: readonly Artefact[]): string =>
  artefacts.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join("");
