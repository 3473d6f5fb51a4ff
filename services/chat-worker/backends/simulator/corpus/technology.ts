import type { Topic } from "./topic.ts";

/** What this product does, in plain words. */
export const GATEWAYS: Topic = {
  id: "gateways",
  language: "en",
  keywords:
    "gateway api key proxy server limit rate stream token request http latency nats redis endpoint backend queue load balancer",
  passages: [
    `A gateway stands between the programs that ask and the models that answer. It checks who is
calling, how much they may use, and where the request should go. The caller sees one address and one
kind of error. The models behind it can change without anybody noticing.`,
    `A rate limit protects everyone who shares a service. Think of a bucket that fills with tokens at a
steady pace. Each request takes some of them out, and when the bucket is empty, the caller has to
wait. A good service says exactly how long, so that nobody has to guess.`,
    `Streaming sends an answer while it is still being written. The first words arrive within a moment,
and the reader can begin before the last word exists. It also makes faults visible: when a stream
breaks, the reader must be told, because half an answer can look like a whole one.`,
    `Keep your key on the server and never in a web page. Use one key for each service, so that you can
switch off one without stopping the others. When a key has leaked, make a new one first, put it in
place, and then disable the old one. Nobody has to stop working for that.`,
    `When a request fails, ask two questions before you try again. Could it succeed the second time? Has
it already done something that must not happen twice? A server that is busy will recover, so wait a
little and try again. A request that is wrong stays wrong however often you send it.`,
    `Latency is what one caller feels, and throughput is what all of them get together. A system can be
good at one and poor at the other. Measure the slow requests and not only the average, because people
remember the one answer that took ten seconds.`,
    `A queue should be short. When more work comes in than goes out, a long queue only makes everybody
wait before they are refused. It is kinder to say no at once, with a clear message, than to say it
after a minute of silence.`,
    `Every wait needs a deadline. A server that is gone sends no message to say so, and a caller without
a deadline waits for ever. Choose a time that is longer than a slow answer and shorter than the
patience of the person at the other end.`,
  ],
};

/** Programming, in prose. */
export const CODE: Topic = {
  id: "code",
  language: "en",
  keywords:
    "code program programming function bug python javascript typescript rust java test debug class variable loop algorithm software developer git sql regex compile",
  passages: [
    `A good function does one thing and says so in its name. If you need the word and to describe it, it
is probably two functions. Give it everything it needs as arguments, and let it return what it made.
Then you can test it without starting half of the program.`,
    `To find a bug, first make it happen every time. Then make the program smaller until only the bug is
left. Change one thing, run it again, and write down what you saw. The fault is usually in the place
that you were sure about, so check that one early.`,
    `A test is a promise about how the code behaves. Write the one that can fail. If you break the code
on purpose and the test stays green, it tests nothing. Look at the edges: the empty list, the longest
name, the last day of the month, and the second time that something is called.`,
    `A variable should live as short as possible. Declare it where it is first needed, give it a value
at once, and do not use it for something else later. The reader has to keep fewer things in mind, and
so do you when you come back after a year.`,
    `A loop that grows a list inside another loop can be slow without looking slow. If the input has a
thousand items, the inner part runs a million times. A map from name to value often turns the inner
loop into a single step, and the code becomes shorter as well.`,
    `Comments should say why, because the code already says what. Write down the reason for the strange
number, the case that surprised you, and the simpler way that did not work. A comment that repeats
the code will be wrong the first time that somebody changes one and not the other.`,
    `Commit small steps, and write a message that explains the reason. When something breaks in a month,
you can find the step that broke it by looking at half of the history, then at half of that half, and
so on. Ten steps are enough to search a thousand changes.`,
    `Read the error message to the end. It often names the file, the line and the value that was wrong.
If it does not, make it better before you go on, because the next person who sees it may be you.`,
    `A type is a small proof that some mistakes cannot happen. Use it for what the compiler can check,
and use a test for the rest. A value that can be missing should say so in its type, and then nobody
has to remember it.`,
  ],
};
