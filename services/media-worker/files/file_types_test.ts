// What clients send is named so that model servers read it.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { kindOf, namedByContent } from "./file_types.ts";

interface Row {
  /** The first bytes, in Latin-1. */
  head: string;
  name: string;
  type?: string;
  /** Name and type for the model server. */
  result: readonly [name: string, type: string];
}

const WEBM = "\x1a\x45\xdf\xa3";
const rows: readonly Row[] = [
  { head: "OggS\0\x02", name: "note.opus", result: ["note.ogg", "audio/ogg"] },
  { head: "OggS", name: "note.OGA", result: ["note.OGA", "audio/ogg"] },
  {
    head: "OggS",
    name: "a.ogg",
    type: "audio/opus",
    result: ["a.ogg", "audio/opus"],
  },
  {
    head: "OggS",
    name: "a.wav",
    type: "audio/wav",
    result: ["a.ogg", "audio/ogg"],
  },
  { head: WEBM, name: "blob", result: ["blob.webm", "audio/webm"] },
  {
    head: WEBM,
    name: "a.webm",
    type: "application/octet-stream",
    result: ["a.webm", "audio/webm"],
  },
  { head: "", name: "", result: ["", ""] },
  { head: "ID3\x04", name: "", result: ["file.mp3", "audio/mpeg"] },
  { head: "\xff\xfb\x90\0", name: "a.mpga", result: ["a.mpga", "audio/mpeg"] },
  { head: "\xff\xf1\x50\x80", name: "a", result: ["a.aac", "audio/aac"] },
  { head: "\xff\xff\xff\xff", name: "a.bin", result: ["a.mp3", "audio/mpeg"] },
  { head: "fLaC", name: "a.b c", result: ["a.b c.flac", "audio/flac"] },
  {
    head: "RIFF\0\0\0\0WAVEfmt ",
    name: "a.wav",
    type: "audio/x-wav",
    result: ["a.wav", "audio/x-wav"],
  },
  { head: "RIFF\0\0\0\0WEBP", name: "a.jpg", result: ["a.webp", "image/webp"] },
  { head: "RIFF\0\0\0\0AVI ", name: "a.avi", result: ["a.avi", ""] },
  { head: "\0\0\0\x20ftypM4A ", name: "a", result: ["a.m4a", "audio/mp4"] },
  { head: "\0\0\0\x20ftypisom", name: "a.m4a", result: ["a.m4a", "video/mp4"] },
  { head: "\0\0\0\x20ftypheic", name: "a.heic", result: ["a.heic", ""] },
  { head: "GIF89a", name: "a", result: ["a.gif", "image/gif"] },
  {
    head: "\xff\xd8\xff\xe0",
    name: "a.jpeg",
    result: ["a.jpeg", "image/jpeg"],
  },
  {
    head: "#!AMR\n",
    name: "a.amr",
    type: "audio/amr",
    result: ["a.amr", "audio/amr"],
  },
];

Deno.test("a file is named and typed by its content, where that is known", () => {
  for (const { head, name, type = "", result } of rows) {
    const content = Buffer.from(head, "latin1");
    const file = namedByContent({ field: "file", name, type, content });
    assert.deepEqual([file.name, file.type], result, JSON.stringify(head));
    assert.equal(file.content, content);
  }
});

Deno.test("kindOf() reads nothing into cut or empty files", () => {
  for (const { head } of rows) {
    for (let end = 0; end < 3; end++) {
      const kind = kindOf(Buffer.from(head.slice(0, end), "latin1"));
      assert.ok(kind === null || end === 2, JSON.stringify(head));
    }
  }
});
