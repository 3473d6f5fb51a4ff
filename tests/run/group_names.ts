/**
 * The files of a group in what deno prints: deno knows only the module that imports
 * them.
 */
import { basename, dirname } from "node:path";

const TEST = /_test\.tsx?$/;
const MODULE = /\S*group_(\d+)_test\.ts/g;

/** The file name of the module that imports the files of a group, counted from 0. */
export const moduleOfGroup = (at: number): string => `group_${at + 1}_test.ts`;

/** The files of a group in short: `shared/bus/{job,link}_test.ts`. */
export function nameOfGroup(files: readonly string[]): string {
  const folders = Map.groupBy(files, (file) => dirname(file));
  return [...folders].map(([folder, [first = "", ...others]]) => {
    const names = [first, ...others]
      .map((file) => basename(file).replace(TEST, ""));
    return others.length === 0
      ? first
      : `${folder}/{${names.join(",")}}_test.ts`;
  }).join(" ");
}

/** Replaces the path of each group's module by the files of the group, line by line. */
export function namingGroups(
  groups: readonly (readonly string[])[],
): TransformStream<string, string> {
  const names = groups.map(nameOfGroup);
  const named = (text: string) =>
    text.replace(MODULE, (path, number) => names[Number(number) - 1] ?? path);
  let line = "";
  return new TransformStream({
    transform(text, controller) {
      const end = text.lastIndexOf("\n") + 1;
      if (end > 0) controller.enqueue(named(line + text.slice(0, end)));
      line = (end > 0 ? "" : line) + text.slice(end);
    },
    flush(controller) {
      controller.enqueue(named(line));
    },
  });
}
