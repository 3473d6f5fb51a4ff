/** What must be true of a commit before it is released. Pure. */

/** The texts of a commit that name its version, and what git knows of it. */
export interface ReleaseState {
  /** `0.2.0`, of `shared/deno.json`. */
  readonly version: string;
  /** `Chart.yaml` of the Helm chart. */
  readonly chart: string;
  /** The examples of the chart, by their file names. */
  readonly examples: Readonly<Record<string, string>>;
  readonly changelog: string;
  /** What `git status --porcelain` prints. */
  readonly status: string;
  /** All tags of the repository. */
  readonly tags: readonly string[];
}

const VERSION = /^\d+\.\d+\.\d+(?:-[0-9a-z.-]+)?$/;
const HEADING = /^## (?<version>\S+) \((?<date>[^)]*)\)$/m;
const DATE = /^\d{4}-\d{2}-\d{2}$/;
/** The tag of the images, in an example. */
const IMAGE_TAG = /\btag: (?<tag>[^\s},]+)/g;

/** The tag of a version. */
export const tagOf = (version: string): string => `v${version}`;

/** Every reason why this commit is not the release of its version; none: it is. */
export function faultsOf(state: ReleaseState): string[] {
  const { version, chart, examples, status, tags } = state;
  const faults: string[] = [];
  if (!VERSION.test(version)) {
    faults.push(
      `shared/deno.json: "${version}" is not a version such as 1.2.3`,
    );
  }
  for (const name of ["version", "appVersion"]) {
    const found = new RegExp(`^${name}: (\\S+)$`, "m").exec(chart)?.[1];
    if (found !== version) {
      faults.push(
        `Chart.yaml: ${name} is ${found ?? "missing"}, not ${version}`,
      );
    }
  }
  for (const [file, text] of Object.entries(examples)) {
    for (const { groups } of text.matchAll(IMAGE_TAG)) {
      if (groups?.tag === version) continue;
      faults.push(
        `${file}: the images have the tag ${groups?.tag}, not ${version}`,
      );
    }
  }
  faults.push(...faultsOfChangelog(state));
  if (status.trim() !== "") {
    faults.push("the working tree has changes: commit them");
  }
  if (tags.includes(tagOf(version))) {
    faults.push(`the tag ${tagOf(version)} exists: raise the version`);
  }
  return faults;
}

function faultsOfChangelog({ version, changelog }: ReleaseState): string[] {
  const { version: newest, date = "" } = HEADING.exec(changelog)?.groups ?? {};
  if (newest !== version) {
    return [
      `CHANGELOG.md: the newest version is ${
        newest ?? "missing"
      }, not ${version}`,
    ];
  }
  return DATE.test(date) ? [] : [
    `CHANGELOG.md: ${version} has no date, such as (2026-11-29), but (${date})`,
  ];
}

/** What the changelog says of a version; empty: nothing. */
export function notesOf(changelog: string, version: string): string {
  const sections = changelog.split(/^(?=## )/m);
  const own = sections.find((each) => each.startsWith(`## ${version} `)) ?? "";
  return own.slice(own.indexOf("\n") + 1).trim();
}
