/** Videos: an image, and a white bar that grows until the end. */
import hme from "h264-mp4-encoder";
import { sleep } from "../serving/pacing.ts";
import { draw, type Scene } from "./picture.ts";

/** Few, because a frame costs a tenth of a second. */
const FRAMES_PER_SECOND = 2;
/** The height of the full bar, as a share of the image. */
const BAR_SHARE = 0.05;

export async function encodeFilm(scene: Scene, seconds: number) {
  const { width, height } = scene;
  const encoder = await hme.createH264MP4Encoder();
  Object.assign(encoder, { width, height, frameRate: FRAMES_PER_SECOND });
  encoder.initialize();
  const { pixels } = draw(scene);
  const frames = seconds * FRAMES_PER_SECOND;
  for (let frame = 1; frame <= frames; frame++) {
    const rows = Math.round(height * BAR_SHARE * frame / frames);
    pixels.fill(255, 0, 4 * width * rows);
    encoder.addFrameRgba(pixels);
    await sleep(0);
  }
  encoder.finalize();
  const film = encoder.FS.readFile(encoder.outputFilename);
  encoder.FS.unlink(encoder.outputFilename);
  encoder.delete();
  return film;
}
