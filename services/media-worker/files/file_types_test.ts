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
  sent: readonly [name: string, type: string];
}

const WEBM = "\x1a\x45\xdf\xa3";
const rows: readonly Row[] = [
  { head: "OggS\0\x02", name: "note.opus", sent: ["note.ogg", "audio/ogg"] },
  { head: "OggS", name: "note.OGA", sent: ["note.OGA", "audio/ogg"] },
  {
    head: "OggS",
    name: "a.ogg",
    type: "audio/opus",
    sent: ["a.ogg", "audio/opus"],
  },
  {
    head: "OggS",
    name: "a.wav",
    type: "audio/wav",
    sent: ["a.ogg", "audio/ogg"],
  },
  { head: WEBM, name: "blob", sent: ["blob.webm", "audio/webm"] },
  {
    head: WEBM,
    name: "a.webm",
    type: "application/octet-stream",
    sent: ["a.webm", "audio/webm"],
  },
  { head: "", name: "", sent: ["", ""] },
  { head: "ID3\x04", name: "", sent: ["file.mp3", "audio/mpeg"] },
  { head: "\xff\xfb\x90\0", name: "a.mpga", sent: ["a.mpga", "audio/mpeg"] },
  { head: "\xff\xf1\x50\x80", name: "a", sent: ["a.aac", "audio/aac"] },
  { head: "\xff\xff\xff\xff", name: "a.bin", sent: ["a.mp3", "audio/mpeg"] },
  { head: "fLaC", name: "a.b c", sent: ["a.b c.flac", "audio/flac"] },
  {
    head: "RIFF\0\0\0\0WAVEfmt ",
    name: "a.wav",
    type: "audio/x-wav",
    sent: ["a.wav", "audio/x-wav"],
  },
  { head: "RIFF\0\0\0\0WEBP", name: "a.jpg", sent: ["a.webp", "image/webp"] },
  { head: "RIFF\0\0\0\0AVI ", name: "a.avi", sent: ["a.avi", ""] },
  { head: "\0\0\0\x20ftypM4A ", name: "a", sent: ["a.m4a", "audio/mp4"] },
  { head: "\0\0\0\x20ftypisom", name: "a.m4a", sent: ["a.m4a", "video/mp4"] },
  { head: "\0\0\0\x20ftypheic", name: "a.heic", sent: ["a.heic", ""] },
  { head: "GIF89a", name: "a", sent: ["a.gif", "image/gif"] },
  { head: "\xff\xd8\xff\xe0", name: "a.jpeg", sent: ["a.jpeg", "image/jpeg"] },
  {
    head: "#!AMR\n",
    name: "a.amr",
    type: "audio/amr",
    sent: ["a.amr", "audio/amr"],
  },
];

Deno.test("a file is named and typed by its content, where that is known", () => {
  for (const { head, name, type = "", sent } of rows) {
    const content = Buffer.from(head, "latin1");
    const file = namedByContent({ field: "file", name, type, content });
    assert.deepEqual([file.name, file.type], sent, JSON.stringify(head));
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
