/**
 * Every bound of the product in one place: what it limits, why this number, who
 * sees it when it is exceeded. A value an operator may change is the *default* of
 * a variable in a service's `config.ts`; the rest are part of the contract.
 */

const KIB = 1024;
const MIB = 1024 * KIB;

/** Bounds of what a caller may send. Beyond one: HTTP 400, unless said otherwise. */
export const REQUEST_LIMITS = {
  /** Whole body, default of `BODY_BYTES_MAX`. 20 MiB carries a few large images. Beyond: 413. */
  bodyBytesMax: 20 * MIB,
  /** All bodies that an edge is reading, default of `BODIES_BYTES_MAX`. Beyond: 503. */
  bodiesBytesMax: 256 * MIB,
  /** `Authorization` header. Our credential has 58 bytes; a longer one is not ours. Beyond: 401. */
  authorizationBytesMax: 8 * KIB,
  /** Nested arrays and objects. JSON schemas in tools reach about 20. */
  depthMax: 64,
  /** Top-level members, known or not: a body with 100,000 distinct keys costs 19 ms to parse. */
  topLevelKeysMax: 64,
  /** Members of all objects together. 4,096 messages with a tool call each have 37,000. */
  membersMax: 65_536,
  /**
   * Bytes of a body that are not in strings: brackets, commas, numbers, white
   * space. A megabyte of brackets costs the parser 17 ms, one of text or of an
   * image costs 1 ms: this bounds what one body can cost, however large it may be.
   */
  structureBytesMax: 2 * MIB,
  messagesMax: 4096,
  contentPartsMax: 1024,
  modelCharsMax: 200,
  toolsMax: 128,
  toolCallsPerMessageMax: 128,
  toolNameCharsMax: 64,
  schemaNameCharsMax: 64,
  stopMax: 16,
  stopCharsMax: 512,
  nMax: 8,
  temperatureMin: 0,
  temperatureMax: 2,
  topPMin: 0,
  topPMax: 1,
  penaltyMin: -2,
  penaltyMax: 2,
  topLogprobsMax: 20,
} as const;

/** Deadlines of reading a request body. Beyond: 408 and the connection closed. */
export const BODY_DEADLINES = {
  /** No byte for this long. */
  progressMs: 15_000,
  /** The whole body. */
  totalMs: 60_000,
} as const;

/**
 * How finely a request body may be cut on its way, by chunks of HTTP or packets of
 * the network. Reading a piece costs 11 us, however small it is. Beyond: 400, and it
 * counts as a bad body.
 */
export const BODY_PIECES = {
  /** A body of any size may come in this many. 45 ms, as much as its structure may cost the parser. */
  free: 4_096,
  /** Beyond those, one piece for so many bytes. Packets carry more than a thousand. */
  bytesMin: 512,
} as const;

/** CPU time that refused bodies of one key may cost, see `read_request.ts`. Beyond: 429. */
export const REFUSED_BODIES = {
  /** Long-term share of one core: a megabyte of hostile JSON costs the parser up to 29 ms. */
  shareOfCore: 1 / 40,
  /** At once. */
  burstMs: 50,
  /** A request of a key that owes more waits up to this long, then is refused. */
  waitMs: 1_000,
  /** Reading a piece of a body that comes in too many. */
  pieceMs: 0.011,
  /** Keys remembered; the least recently used is dropped. */
  keysMax: 10_000,
} as const;

/** The public HTTP server. */
export const SERVER_LIMITS = {
  /** Request line and headers. Beyond: 431. */
  headBytesMax: 32 * KIB,
  /** Time to receive them. Beyond: 408. */
  headMs: 60_000,
  /** Time to receive a whole request, even one answered before its body was read. */
  requestMs: 120_000,
  /** How often overdue requests are looked for. */
  checkMs: 5_000,
  /** A connection without a request. Longer than proxies keep theirs, so that the proxy closes it first. */
  idleMs: 620_000,
  /** How long a client may go on sending after it was told that its connection ends. */
  lingerMs: 2_000,
  /** How long a client may take to read the rest of a finished answer, beside what its bytes take at 16 KB/s. */
  restMs: 60_000,
  restBytesPerMs: 16,
} as const;

/** Server-sent events toward the client. */
export const SSE_LIMITS = {
  /** Silence after which a `: keep-alive` comment is sent. Some hand-written clients choke on comments, so not sooner. */
  keepAliveMs: 15_000,
  /** A stream without a first token is opened after this long, default of `STREAM_HEAD_SECONDS`. Many proxies cut a silent connection after 30 to 60 s. */
  headMs: 20_000,
  /** A client that reads nothing for this long is cut off. */
  slowClientMs: 60_000,
} as const;

/** The stream protocol between worker and edge, see `bus/frame.ts`. */
export const STREAM_LIMITS = {
  /** Unacknowledged bytes a worker keeps for replay; also the credit window. */
  windowBytes: 256 * KIB,
  /** Payload of one DATA frame. A quarter of the window, well under a default server's 1 MB. */
  framePayloadBytesMax: 64 * KIB,
  /** One line (one chunk) of a stream. */
  lineBytesMax: 1 * MIB,
  /** The edge acknowledges after this many delivered bytes or frames, whichever is first. */
  ackBytes: 64 * KIB,
  ackFrames: 32,
  /** A worker with nothing to send says so this often, with its last sequence number. */
  idleBeatMs: 1_000,
  /** Silence after which the edge asks the worker for what it may have lost. */
  silenceProbeMs: 1_250,
  /** No frame at all for this long, probes unanswered: the edge gives the stream up. Beats of the worker usually tell sooner. */
  silenceLostMs: 10_000,
  /** At most one NAK per stream in this time, and one replay; doubled up to the maximum while a NAK changes nothing. */
  nakIntervalMs: 50,
  nakIntervalMaxMs: 1_000,
  /** Bytes sent again at once; the rest of a replay follows tick by tick, so that 1,000 streams do not flood a bus that just came back. */
  replayBytes: 64 * KIB,
  /** An END that nobody acknowledges is sent again this often, and forgotten after `endForgetMs`. */
  endRetryMs: 1_000,
  /** A worker that hears nothing of the edge for this long gives the attempt up, ended or not. */
  endForgetMs: 30_000,
  /** Both ends look at their clocks this often. */
  tickMs: 50,
} as const;

/** The names of {@link STREAM_LIMITS}, so that a test can use other numbers. */
export type StreamLimits = {
  readonly [Name in keyof typeof STREAM_LIMITS]: number;
};

/** Finding a worker and noticing that one is gone. */
export const DISPATCH_LIMITS = {
  workerBeatMs: 250,
  edgeBeatMs: 500,
  /** A worker without a beat for this long gets no new jobs. */
  workerSkipMs: 1_000,
  /** A worker without a beat for this long is asked directly whether it lives. */
  workerProbeMs: 500,
  /** A worker without a beat for this long is lost, and with it its streams. */
  workerLostMs: 2_000,
  /**
   * A worker that the bus does not find is asked again after this long, and lost
   * when it is still not there: one that loses its connection, or its server of
   * NATS, is back within some tens of milliseconds, and within 200 when two dials
   * fail before (`retryMs` of the link).
   */
  workerMissingMs: 250,
  /** A worker cancels the work of an edge silent for this long. */
  edgeLostMs: 3_000,
  /** Requests survive a bus that is away for this long. */
  busLostMs: 10_000,
  /** A worker has this long to accept or reject a job. */
  acceptMs: 250,
  workersTriedMax: 3,
  /** A request waits this long at most for a free slot, then 503 `overloaded`. */
  queueWaitMs: 2_000,
  /** Waiting requests per edge, default of `QUEUE_MAX`. */
  queueMax: 256,
  /** Attempts of one request that may be lost or stay without an answer, the first included. */
  attemptsMax: 2,
} as const;

/** Request bodies on the bus. */
export const BUS_LIMITS = {
  /** A job up to this size travels in one message; a default server takes 1 MB. */
  jobBytesMax: 512 * KIB,
  /** Larger ones are cut into pieces of this size, this many unacknowledged at once. */
  pieceBytes: 256 * KIB,
  piecesInFlight: 4,
  /** A worker waits this long for the next piece before it gives the job up. */
  pieceWaitMs: 5_000,
} as const;

/** API keys, see `keys/key.ts`. */
export const KEY_LIMITS = {
  descriptionCharsMax: 100,
  /** Why not a hundred: docs/console.md. Beyond: 409, and the command line says so. */
  keysPerOwnerMax: 100_000,
  /** Entries of hash -> key id that an edge remembers. 100 bytes each. */
  lookupEntriesMax: 100_000,
  /** Unknown hashes an edge remembers, and for how long. */
  unknownEntriesMax: 10_000,
  unknownMs: 30_000,
  /** Unknown keys that are looked up for a client address, default of `UNKNOWN_KEYS_PER_SECOND`. Beyond: 429. */
  unknownPerSecond: 20,
  /**
   * Redis may be silent for this long before it counts as away: 503 is promised
   * within 150 ms, and a sixth of that is left to a busy event loop.
   */
  checkMs: 125,
  /** An edge asks this often whether Redis still holds the data it held. */
  storeWatchMs: 500,
} as const;
