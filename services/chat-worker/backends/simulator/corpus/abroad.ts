import type { Topic } from "./topic.ts";

/** A few sentences of German. */
export const GERMAN: Topic = {
  id: "german",
  language: "de",
  keywords:
    "hallo danke bitte deutsch wie geht ich du was ist kannst erzähl warum guten tag können german",
  passages: [
    `Guten Tag! Schön, dass Sie schreiben. Ich helfe Ihnen gern bei einer Frage, einem Plan oder einem
kurzen Text. Sagen Sie mir einfach, worum es geht, und wir fangen mit dem ersten Schritt an.`,
    `Das ist eine gute Frage, und es gibt mehr als eine Antwort darauf. Es kommt darauf an, wie viel Zeit
Sie haben. Oft reicht der einfache Weg, und wenn er nicht reicht, merkt man es früh genug.`,
    `Am Morgen ist die Stadt noch still. Der Bäcker macht das Licht an, die erste Bahn fährt über die
Brücke, und auf dem Markt riecht es nach Brot und nach nassem Stein. Wer jetzt schon wach ist, hat
den Tag für sich.`,
    `Für eine einfache Suppe braucht man eine Zwiebel, zwei Karotten und etwas Geduld. Man schneidet alles
klein, lässt es in Butter weich werden und gibt heißes Wasser dazu. Nach einer halben Stunde ist die
Suppe fertig, und mit frischem Brot schmeckt sie am besten.`,
    `Danke für die Nachricht. Ich bin ein kleines Modell und kenne nur wenige deutsche Sätze, aber diese
wenigen sage ich gern. Wenn etwas nicht klar ist, fragen Sie bitte noch einmal.`,
  ],
};

/** A few sentences of French. */
export const FRENCH: Topic = {
  id: "french",
  language: "fr",
  keywords:
    "bonjour merci salut français comment ça va je tu est que quoi pourquoi raconte pouvez vous french",
  passages: [
    `Bonjour ! Je suis heureux de vous lire. Je peux répondre à une question simple, comparer deux idées
ou écrire un petit texte avec vous. Dites-moi ce que vous cherchez, et nous commençons par le début.`,
    `C'est une bonne question, et il y a plus d'une réponse. Tout dépend du temps que vous avez. Le chemin
le plus simple est souvent le meilleur, et on peut toujours changer de route un peu plus tard.`,
    `Le matin, la rue est encore calme. Le café ouvre ses portes, le pain est chaud, et la lumière tombe
doucement sur les toits. Il n'y a rien de mieux que de marcher une heure sans regarder la montre.`,
    `Pour faire une omelette, il faut trois œufs, un peu de beurre et de la patience. On bat les œufs avec
une pincée de sel, on les verse dans la poêle, et on attend que le bord soit pris. Avec une salade
verte, c'est un repas complet.`,
    `Merci pour votre message. Je suis un petit modèle et je ne connais que quelques phrases de français,
mais je les dis avec plaisir.`,
  ],
};

/** A few sentences of Spanish. */
export const SPANISH: Topic = {
  id: "spanish",
  language: "es",
  keywords:
    "hola gracias español buenos días cómo estás qué es por favor cuéntame puedes porque dónde spanish",
  passages: [
    `¡Hola! Me alegra leer tu mensaje. Puedo responder a una pregunta sencilla, comparar dos ideas o
escribir un texto corto contigo. Dime qué buscas y empezamos por el primer paso.`,
    `Es una buena pregunta y hay más de una respuesta. Todo depende del tiempo que tengas. El camino más
sencillo suele ser el mejor, y siempre se puede cambiar de idea un poco más tarde.`,
    `Por la mañana el pueblo huele a pan y a café. Los vecinos abren las ventanas, el sol llega despacio a
la plaza, y un perro duerme junto a la fuente. Nadie tiene prisa hasta que suena la campana.`,
    `Para hacer una tortilla hacen falta huevos, patatas, aceite y un poco de paciencia. Se fríen las
patatas a fuego lento, se mezclan con los huevos y se deja que todo se dore por los dos lados. Está
buena caliente y todavía mejor al día siguiente.`,
    `Gracias por escribir. Soy un modelo pequeño y solo conozco algunas frases en español, pero las digo
con mucho gusto.`,
  ],
};

/** A few sentences of Chinese. */
export const CHINESE: Topic = {
  id: "chinese",
  language: "zh",
  keywords:
    "你好 谢谢 请问 什么 怎么 为什么 中文 天气 吗 我 你 介绍 一下 写 说 这 那 chinese",
  passages: [
    `你好！很高兴收到你的消息。我可以回答一个简单的问题，比较两种想法，或者和你一起写一段短文。
请告诉我你想做什么，我们从第一步开始。`,
    `这是一个好问题，答案不止一个。要看你有多少时间，也要看你想要什么样的结果。
简单的方法常常就够了，如果不够，以后还可以再改。`,
    `早上的城市很安静。面包店的灯亮了，第一班车从桥上开过，河边有人在慢慢地走。
这个时候喝一杯热茶，看看窗外的树，一天就有了好的开始。`,
    `煮一碗面很简单。先把水烧开，放一点盐，再把面放进去。等五分钟，加上鸡蛋和青菜，最后放一点酱油。
趁热吃，味道最好。`,
    `谢谢你的问题。我是一个很小的语言模型，只学过几句中文，不过我很愿意把这几句说给你听。`,
  ],
};

/** A few sentences of Japanese. */
export const JAPANESE: Topic = {
  id: "japanese",
  language: "ja",
  keywords:
    "こんにちは ありがとう です ます ください なに どう なぜ 日本語 教えて は を に の か japanese",
  passages: [
    `こんにちは。メッセージをありがとうございます。簡単な質問に答えたり、短い文章を一緒に書いたりできます。
何をしたいか教えてください。最初の一歩から始めましょう。`,
    `それは良い質問です。答えは一つではありません。どれくらい時間があるかによって変わります。
簡単な方法で十分なことが多いので、まずそれを試してみましょう。`,
    `朝の町はとても静かです。パン屋の明かりがつき、最初の電車が橋を渡ります。
川のそばを歩いて、温かいお茶を飲むと、良い一日が始まります。`,
    `味噌汁を作るのは難しくありません。まずお湯を沸かして、豆腐とわかめを入れます。
火を止めてから味噌を溶かすと、香りがよく残ります。温かいうちにどうぞ。`,
    `ご質問をありがとうございます。私は小さな言語モデルで、日本語は少ししか知りませんが、喜んでお話しします。`,
  ],
};
