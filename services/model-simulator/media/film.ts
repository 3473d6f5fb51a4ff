/**
 * Grey films as MP4 files. A grey picture is the one that H.264 (ITU-T H.264, 03/2010)
 * predicts where it knows nothing, so each macroblock is the same eight bits, and each
 * later frame says only that nothing has changed. That gives a film of any size and
 * length without an encoder.
 */
import { Buffer } from "node:buffer";
import { BitWriter } from "./bit_writer.ts";

/** The size of a film, in pixels, both even, and its length. */
export interface Film {
  readonly width: number;
  readonly height: number;
  readonly seconds: number;
}

const MACROBLOCK_SIDE = 16;
/** One frame a second is enough where nothing moves. */
const FRAME_MS = 1_000;
const MS_PER_SECOND = 1_000;

/** Types of NAL units, with the bits that say that later ones refer to them. */
const NAL = { slice: 0x41, idrSlice: 0x65, sps: 0x67, pps: 0x68 };
/** `slice_type`: all slices of the picture are P or I slices. */
const SLICE_TYPE = { p: 5, i: 7 };
const BASELINE_PROFILE = 66;
/** This stream keeps to the constrained baseline profile. */
const CONSTRAINTS = 0xc0;
/** Macroblocks of a frame by level, times ten (table A-1). */
const LEVELS = [
  { level: 31, macroblocksMax: 3_600 },
  { level: 40, macroblocksMax: 8_192 },
  { level: 51, macroblocksMax: 36_864 },
];
const LEVEL_MAX = 60;
/** `frame_num` has four bits. */
const FRAME_NUM_BITS = 4;
/**
 * A macroblock: 16x16 with DC prediction (`mb_type` 3), chroma with DC prediction, no
 * change of quantisation, no coefficients.
 */
const GREY_MACROBLOCK = { bits: 0b0010_0111, count: 8 };

/** The MP4 file of a film. The same film has the same file. */
export function filmOf(film: Film): Uint8Array {
  const frameCount = film.seconds * MS_PER_SECOND / FRAME_MS;
  const frames = Array.from(
    { length: frameCount },
    (_, nth) => sizedUnit(nth === 0 ? keyFrame(film) : sameFrame(film, nth)),
  );
  const fileType = box("ftyp", Buffer.from("isom\0\0\0\0isomavc1"));
  // The place of the frames is known when the size of the head is.
  const sizes = frames.map(({ length }) => length);
  const headBytes = movieBox(film, sizes, 0).length;
  const firstFrameAt = fileType.length + headBytes + BOX_HEAD_BYTES;
  return Buffer.concat([
    fileType,
    movieBox(film, sizes, firstFrameAt),
    box("mdat", ...frames),
  ]);
}

const macroblocks = (pixels: number) => Math.ceil(pixels / MACROBLOCK_SIDE);

/** The sequence parameter set (7.3.2.1.1): what the decoder must know beforehand. */
function sequenceParameters({ width, height }: Film): Buffer {
  const columns = macroblocks(width);
  const rows = macroblocks(height);
  const { level } =
    LEVELS.find(({ macroblocksMax }) => columns * rows <= macroblocksMax) ??
      { level: LEVEL_MAX };
  const bits = new BitWriter([
    NAL.sps,
    BASELINE_PROFILE,
    CONSTRAINTS,
    level,
  ]);
  bits.unsigned(0); // seq_parameter_set_id
  bits.unsigned(FRAME_NUM_BITS - 4); // log2_max_frame_num_minus4
  bits.unsigned(2); // pic_order_cnt_type: frames are shown in their order
  bits.unsigned(1); // max_num_ref_frames
  bits.flag(false); // gaps_in_frame_num_value_allowed_flag
  bits.unsigned(columns - 1); // pic_width_in_mbs_minus1
  bits.unsigned(rows - 1); // pic_height_in_map_units_minus1
  bits.flag(true); // frame_mbs_only_flag
  bits.flag(true); // direct_8x8_inference_flag
  bits.flag(true); // frame_cropping_flag, in units of two pixels
  bits.unsigned(0); // frame_crop_left_offset
  bits.unsigned((columns * MACROBLOCK_SIDE - width) / 2);
  bits.unsigned(0); // frame_crop_top_offset
  bits.unsigned((rows * MACROBLOCK_SIDE - height) / 2);
  bits.flag(false); // vui_parameters_present_flag
  return bits.end();
}

/** The picture parameter set (7.3.2.2). */
function pictureParameters(): Buffer {
  const bits = new BitWriter([NAL.pps]);
  bits.unsigned(0); // pic_parameter_set_id
  bits.unsigned(0); // seq_parameter_set_id
  bits.flag(false); // entropy_coding_mode_flag: CAVLC
  bits.flag(false); // bottom_field_pic_order_in_frame_present_flag
  bits.unsigned(0); // num_slice_groups_minus1
  bits.unsigned(0); // num_ref_idx_l0_default_active_minus1
  bits.unsigned(0); // num_ref_idx_l1_default_active_minus1
  bits.flag(false); // weighted_pred_flag
  bits.fixed(0, 2); // weighted_bipred_idc
  bits.unsigned(0); // pic_init_qp_minus26
  bits.unsigned(0); // pic_init_qs_minus26
  bits.unsigned(0); // chroma_qp_index_offset
  bits.flag(false); // deblocking_filter_control_present_flag
  bits.flag(false); // constrained_intra_pred_flag
  bits.flag(false); // redundant_pic_cnt_present_flag
  return bits.end();
}

/** The head of a slice (7.3.3) up to `frame_num`. */
function sliceOf(nal: number, type: number, frame: number): BitWriter {
  const bits = new BitWriter([nal]);
  bits.unsigned(0); // first_mb_in_slice
  bits.unsigned(type);
  bits.unsigned(0); // pic_parameter_set_id
  bits.fixed(frame, FRAME_NUM_BITS);
  return bits;
}

/** The first frame: grey. */
function keyFrame({ width, height }: Film): Buffer {
  const bits = sliceOf(NAL.idrSlice, SLICE_TYPE.i, 0);
  bits.unsigned(0); // idr_pic_id
  bits.flag(false); // no_output_of_prior_pics_flag
  bits.flag(false); // long_term_reference_flag
  bits.unsigned(0); // slice_qp_delta
  const count = macroblocks(width) * macroblocks(height);
  for (let macroblock = 0; macroblock < count; macroblock++) {
    bits.fixed(GREY_MACROBLOCK.bits, GREY_MACROBLOCK.count);
  }
  return bits.end();
}

/** A later frame: the same as the one before it. */
function sameFrame({ width, height }: Film, frame: number): Buffer {
  const bits = sliceOf(NAL.slice, SLICE_TYPE.p, frame);
  bits.flag(false); // num_ref_idx_active_override_flag
  bits.flag(false); // ref_pic_list_modification_flag_l0
  bits.flag(false); // adaptive_ref_pic_marking_mode_flag
  bits.unsigned(0); // slice_qp_delta
  bits.unsigned(macroblocks(width) * macroblocks(height)); // mb_skip_run
  return bits.end();
}

/** A NAL unit as MP4 files have it: after its size. */
const sizedUnit = (unit: Buffer) => Buffer.concat([uint32(unit.length), unit]);

const BOX_HEAD_BYTES = 8;
const uint16 = (...values: number[]) =>
  Buffer.from(Uint16Array.from(values).buffer).swap16();
const uint32 = (...values: number[]) =>
  Buffer.from(Uint32Array.from(values).buffer).swap32();

/** A box of an MP4 file (ISO/IEC 14496-12): its size, type and content. */
function box(type: string, ...content: Uint8Array[]): Buffer {
  const size = content.reduce((sum, { length }) => sum + length, 0);
  const head = Buffer.concat([
    uint32(BOX_HEAD_BYTES + size),
    Buffer.from(type),
  ]);
  return Buffer.concat([head, ...content]);
}

/** Right, down, and no perspective: pictures are shown as they are. */
const MATRIX = uint32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000);
/** Version 0 of a box without flags, and the times of creation and change. */
const NO_DATES = uint32(0, 0, 0);

/** The head of the file: one track. Times are in milliseconds. */
function movieBox(film: Film, sizes: number[], firstFrameAt: number): Buffer {
  const { width, height, seconds } = film;
  const durationMs = seconds * MS_PER_SECOND;
  const times = uint32(MS_PER_SECOND, durationMs);
  const header = box(
    "mvhd",
    NO_DATES,
    times,
    uint32(0x10000, 0x01000000, 0, 0), // rate 1, volume 1
    MATRIX,
    uint32(0, 0, 0, 0, 0, 0, 2), // the id of the next track
  );
  const trackHeader = box(
    "tkhd",
    uint32(3, 0, 0, 1, 0, durationMs), // enabled, in the movie; track 1
    uint32(0, 0, 0, 0),
    MATRIX,
    uint32(width * 0x10000, height * 0x10000),
  );
  const media = box(
    "mdia",
    box("mdhd", NO_DATES, times, uint16(0x55c4, 0)), // no language
    box("hdlr", uint32(0, 0), Buffer.from("vide"), Buffer.alloc(13)),
    box(
      "minf",
      box("vmhd", uint32(1, 0, 0)),
      box("dinf", box("dref", uint32(0, 1), box("url ", uint32(1)))),
      sampleTable(film, sizes, firstFrameAt),
    ),
  );
  return box("moov", header, box("trak", trackHeader, media));
}

/** Where each frame is, and how to decode it. */
function sampleTable(
  film: Film,
  sizes: readonly number[],
  firstFrameAt: number,
): Buffer {
  const sps = sequenceParameters(film);
  const pps = pictureParameters();
  const decoder = box(
    "avcC",
    // Version 1, profile and level, NAL units after sizes of four bytes, one SPS.
    Buffer.concat([Buffer.of(1), sps.subarray(1, 4), Buffer.of(0xff, 0xe1)]),
    uint16(sps.length),
    sps,
    Buffer.of(1),
    uint16(pps.length),
    pps,
  );
  const entry = box(
    "avc1",
    uint16(0, 0, 0, 1),
    Buffer.alloc(16),
    uint16(film.width, film.height),
    uint32(0x480000, 0x480000, 0), // 72 dots per inch
    uint16(1), // one frame per sample
    Buffer.alloc(32),
    uint16(24, 0xffff), // colour, no table of colours
    decoder,
  );
  const count = sizes.length;
  return box(
    "stbl",
    box("stsd", uint32(0, 1), entry),
    box("stts", uint32(0, 1, count, FRAME_MS)),
    box("stss", uint32(0, 1, 1)), // only the first frame is a key frame
    box("stsc", uint32(0, 1, 1, count, 1)),
    box("stsz", uint32(0, 0, count, ...sizes)),
    box("stco", uint32(0, 1, firstFrameAt)),
  );
}
