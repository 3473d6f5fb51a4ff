/**
 * What a file is, by its first bytes. Model servers decide by the name of a file how to
 * read it, and browsers name recordings in their own ways.
 */
import { Buffer } from "node:buffer";
import type { UploadedFile } from "@gateway/shared/bus/job";

/** A kind of file: its media type, and the usual extensions, the best known first. */
export interface FileKind {
  readonly type: string;
  readonly extensions: readonly string[];
}

const PNG: FileKind = { type: "image/png", extensions: ["png"] };
const JPEG: FileKind = { type: "image/jpeg", extensions: ["jpg", "jpeg"] };
const GIF: FileKind = { type: "image/gif", extensions: ["gif"] };
const WEBP: FileKind = { type: "image/webp", extensions: ["webp"] };
const WAV: FileKind = { type: "audio/wav", extensions: ["wav"] };
// Not `opus`: OpenAI and whisper servers know that content only by these names.
const OGG: FileKind = { type: "audio/ogg", extensions: ["ogg", "oga"] };
const FLAC: FileKind = { type: "audio/flac", extensions: ["flac"] };
const MP3: FileKind = {
  type: "audio/mpeg",
  extensions: ["mp3", "mpga", "mpeg"],
};
const AAC: FileKind = { type: "audio/aac", extensions: ["aac"] };
const WEBM: FileKind = { type: "audio/webm", extensions: ["webm"] };
const M4A: FileKind = { type: "audio/mp4", extensions: ["m4a", "mp4"] };
const MP4: FileKind = { type: "video/mp4", extensions: ["mp4", "m4a", "mov"] };

const STARTS: readonly { readonly start: string; readonly kind: FileKind }[] = [
  { start: "\x89PNG\r\n\x1a\n", kind: PNG },
  { start: "\xff\xd8\xff", kind: JPEG },
  { start: "GIF8", kind: GIF },
  { start: "OggS", kind: OGG },
  { start: "fLaC", kind: FLAC },
  { start: "ID3", kind: MP3 },
  // EBML (RFC 8794): WebM and Matroska.
  { start: "\x1a\x45\xdf\xa3", kind: WEBM },
];
/** What follows "RIFF" and a length. */
const RIFF: { readonly [form: string]: FileKind } = { WAVE: WAV, WEBP };
/** Brands of ISO media files that are pictures (HEIF, AVIF). */
const PICTURE_BRAND = /^(hei|hev|mif|msf|avif)/;
const HEAD_BYTES = 16;
const EXTENSION = /\.([A-Za-z0-9]{1,5})$/;
const UNTYPED = /^$|^application\/octet-stream$/;

/** The kind of a file; null if it is none of those known here. */
export function kindOf(bytes: Uint8Array): FileKind | null {
  const head = Buffer.from(bytes.subarray(0, HEAD_BYTES)).toString("latin1");
  const found = STARTS.find(({ start }) => head.startsWith(start));
  if (found !== undefined) return found.kind;
  if (head.startsWith("RIFF")) return RIFF[head.slice(8, 12)] ?? null;
  if (head.slice(4, 8) === "ftyp") {
    const brand = head.slice(8, 12);
    if (PICTURE_BRAND.test(brand)) return null;
    return brand.startsWith("M4A") ? M4A : MP4;
  }
  return framesOf(bytes[0] ?? 0, bytes[1] ?? 0);
}

/** Audio that begins with the header of a frame: eleven ones, a version, a layer. */
function framesOf(first: number, second: number): FileKind | null {
  if (first !== 0xff || (second & 0xe0) !== 0xe0) return null;
  // ADTS has twelve ones and no layer.
  if ((second & 0xf6) === 0xf0) return AAC;
  const hasLayer = (second & 0x06) !== 0;
  const hasVersion = (second & 0x18) !== 0x08;
  return hasLayer && hasVersion ? MP3 : null;
}

/**
 * The file with a name that ends as its content does, and with a media type. Unchanged
 * if its kind is not known.
 */
export function namedByContent(file: UploadedFile): UploadedFile {
  const kind = kindOf(file.content);
  if (kind === null) return file;
  const [end = "", extension = ""] = EXTENSION.exec(file.name) ?? [];
  const fits = kind.extensions.includes(extension.toLowerCase());
  const stem = file.name.slice(0, file.name.length - end.length) || file.field;
  return {
    ...file,
    name: fits ? file.name : `${stem}.${kind.extensions[0]}`,
    type: fits && !UNTYPED.test(file.type) ? file.type : kind.type,
  };
}
