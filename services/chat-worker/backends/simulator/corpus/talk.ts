import type { Topic } from "./topic.ts";

/** Greetings and small talk: where the model goes when a message is about nothing in particular. */
export const SMALL_TALK: Topic = {
  id: "small-talk",
  language: "en",
  keywords:
    "hi hello hey thanks thank morning evening bye ping chat joke bored",
  passages: [
    `Hello! It is good to hear from you. I am ready to help with a question, a plan, or a text that
needs another pair of eyes. Tell me a little about what you are working on, and we can take it one
step at a time.`,
    `Hi there! I am doing well, thank you for asking. The day is quiet here, and I have plenty of time
for you. We can talk about food, books, the stars, or the small problem that has been on your mind
since this morning.`,
    `Thank you, that is kind of you to say. I am glad that it helped. If anything is still unclear,
just ask again in other words, and I will try to explain it from another side.`,
    `Good morning! A fresh day is a good time for a short list. Write down the three things that matter
most, begin with the one that worries you, and leave the rest for the afternoon. A cup of tea beside
the list does no harm.`,
    `That is a good question, and there is more than one answer to it. It depends on how much time you
have and on what you want to do with the result. A simple way is often enough. If you like, I can go
into the details afterwards.`,
    `I am not sure that I understood every part of your message, so here is what I can offer. I can
explain an idea in plain words, compare two ways of doing something, or write a first draft that you
can change as you like. Tell me which of these would help you most.`,
    `Pong! Your ping has arrived, and everything works. You can send me a longer message whenever you are ready,
and I will do my best to give you a clear answer.`,
    `Here is a small joke for you. What did one clock say to the other? You are early, and I am late, so
between us we are a very good clock. I know better ones, but they need more time. If you want another,
just say so.`,
    `Good evening! The best part of the day is often the hour when nothing has to be done any more. You
can read a few pages, call an old friend, or look out of the window until the first lights go on. I
am happy to keep you company for a while.`,
    `It was nice to talk with you. Take care of yourself, rest well, and come back whenever you like.
I will be here, and I am always glad to hear how things went in the end.`,
    `I see what you mean. Sometimes a plan looks fine on paper and still feels wrong. It helps to ask
what would have to be true for it to work, and then to check the weakest of those points first. Most
plans do not need to be perfect. They need to be easy to change.`,
    `Of course, I would be glad to help. Let us begin with what you already know, and then look at what
is missing. Small steps are easier to check than big ones, and you can stop at any point when the
answer is good enough for you.`,
  ],
};

/** What the model says about itself. */
export const ABOUT: Topic = {
  id: "about",
  language: "en",
  keywords:
    "you your who are model simulator ai assistant name yourself made human robot",
  passages: [
    `I am the simulator, a small language model that lives inside the gateway itself. I learned from a
few thousand words, so I know a little about cooking, travel, gardens and stars, and not much about
anything else. I am here so that you can try every part of the service without a model server.`,
    `I am a model made of simple statistics. I look at the last few words, remember which words came
after them in the texts that I know, and choose one of them by chance. That is why I sound sure of
myself even when I am not. Please do not take my word for anything that matters.`,
    `My name is simulator. I am not a person, and I have no memory of earlier talks. What I can do is
answer in many ways: word by word in a stream, several answers at once, as a call of one of your
tools, or as an object in the shape that you ask for.`,
    `I am an assistant for tests and for first steps. I honour the temperature, the seed and the limits
that you send, and I count every token that I use. If you need real knowledge, put a larger model
behind the gateway. Your program will not have to change.`,
    `I was made to be honest and quick. I know a few languages, but only a few sentences in each. When
you send me a picture, I can see that it is there, but I cannot look inside. When you give me tools,
I choose the one that fits your words best.`,
  ],
};

/** How the model writes while it thinks. Not shown as an answer. */
export const THINKING: Topic = {
  id: "thinking",
  language: "inner",
  keywords: "",
  passages: [
    `First I should be clear about what is really being asked. The question has two parts, and the
second part depends on the first. I will start with the simple case and see whether the answer still
holds when I change one thing. That seems to work, so I can keep it short.`,
    `Let me think about this step by step. The user wants something useful, not something long. There
are a few ways to say it. The plain one is probably the best, because it is easy to check. I should
mention the one case where it does not hold, and then stop.`,
    `What do I know about this? Some of it is common knowledge, and some of it I would have to guess. I
should not guess where it matters. I will say what is certain first, then give one example, and then
offer to go into the details.`,
    `Is there a trap in this question? At first it looks easy. If I read it again, one word could mean
two things. I will take the more common meaning, say so in passing, and leave room for the other. A
friendly tone fits here.`,
    `The user may be in a hurry, so the answer should come in the first sentence. After that I can give
the reason. I will check the numbers once more before I write them down. Yes, that is right. Now I
can put it into words.`,
    `I could answer this with a list, but a few plain sentences will read better. Let me order them:
first the result, then why, then what to do next. Nothing here needs a warning. That should be
enough.`,
  ],
};
