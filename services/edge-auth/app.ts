/** The routes of the public API. */
import {
  FORWARD_NAMES,
  forwardEndpoint,
} from "@gateway/shared/forward/endpoints";
import type { AppDependencies } from "./api/dependencies.ts";
import {
  form,
  type Handler,
  json,
  read,
  type Route,
  routeOf,
} from "./api/route.ts";
import { serveRoutes } from "./api/serve.ts";
import { CHAT_ENDPOINT } from "./chat/request.ts";
import { forwardTo } from "./forward/endpoint.ts";
import { noStoredResponse, refuseWebSocket } from "./forward/no_responses.ts";
import type { Exchange } from "./http/exchange.ts";
import { deleteAnswer, sendAnswer } from "./kept/handlers.ts";
import { isForm } from "./http/form_parser.ts";
import {
  IMAGE,
  IMAGE_EDIT,
  IMAGE_EDIT_UPLOAD,
  SPEECH,
  TRANSCRIPTION,
  TRANSLATION,
} from "./media/endpoints.ts";
import { sendModels } from "./requests/models.ts";
import { runRequest } from "./requests/run_request.ts";
import { runUpload } from "./requests/upload/run_upload.ts";
import { VIDEOS } from "./videos/handlers.ts";

const editImage: Handler = (call, deps) =>
  isForm(call.exchange.headers)
    ? runUpload(call, IMAGE_EDIT_UPLOAD, deps)
    : runRequest(call, IMAGE_EDIT, deps);

/** The paths that need a key. */
export const ROUTES: readonly Route[] = [
  routeOf("chat", "/v1/chat/completions", json(CHAT_ENDPOINT)),
  ...FORWARD_NAMES.map((name) =>
    routeOf(name, forwardEndpoint(name).path, {
      POST: (call, deps) => runRequest(call, forwardTo(name, call, deps), deps),
      ...name === "responses" && { GET: refuseWebSocket },
    })
  ),
  routeOf("response", /^\/v1\/responses\/([^/]+)(?:\/.*)?$/, {
    ...read(noStoredResponse),
    POST: noStoredResponse,
    DELETE: noStoredResponse,
  }),
  routeOf("speech", "/v1/audio/speech", json(SPEECH)),
  routeOf("image", "/v1/images/generations", json(IMAGE)),
  routeOf("image_edit", "/v1/images/edits", { POST: editImage }),
  routeOf("transcription", "/v1/audio/transcriptions", form(TRANSCRIPTION)),
  routeOf("translation", "/v1/audio/translations", form(TRANSLATION)),
  routeOf("video", "/v1/videos", {
    ...read(VIDEOS.list),
    POST: VIDEOS.create,
  }),
  routeOf("video_job", /^\/v1\/videos\/([^/]+)$/, {
    ...read(VIDEOS.retrieve),
    DELETE: VIDEOS.remove,
  }),
  routeOf("video_content", /^\/v1\/videos\/([^/]+)\/content$/, {
    GET: VIDEOS.sendContent,
  }),
  routeOf("video_remix", /^\/v1\/videos\/([^/]+)\/remix$/, {
    POST: VIDEOS.remix,
  }),
  routeOf("answer", /^\/v1\/answers\/([^/]+)$/, {
    GET: sendAnswer,
    DELETE: deleteAnswer,
  }),
  routeOf("models", "/v1/models", read(sendModels)),
  routeOf("model", /^\/v1\/models\/(.+)$/s, read(sendModels)),
];

/** Handles every request of the public API. The result never rejects. */
export const createApp = (
  deps: AppDependencies,
): (exchange: Exchange) => Promise<void> => serveRoutes(ROUTES, deps);
